"""Label-smoothed cross entropy (section 5.4): smoothing spreads its share evenly over the whole vocabulary.

Axes: B rows, T target positions, V vocabulary.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from dragoman.batch import PAD, Batch
from dragoman.models.interface import Model


def summed_loss(model: Model, batch: Batch, smoothing: float) -> Float[Tensor, ""]:
    """The loss of a batch, summed over its real target tokens, so that parts of an update add up to the whole."""
    logits = model.project(model(batch))
    return cross_entropy(
        logits.flatten(0, 1).float(),
        batch.labels.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )
