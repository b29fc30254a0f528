"""The loss of a batch: label-smoothed cross entropy (section 5.4).

Axes: B rows, T target positions, D width, V vocabulary.
"""

from jaxtyping import Float
from torch import Tensor

from dragoman.batch import PAD, Batch
from dragoman.kernels.cross_entropy import smoothed_loss
from dragoman.models.interface import Model


def summed_loss(model: Model, batch: Batch, smoothing: float) -> Float[Tensor, ""]:
    """The loss of a batch, summed over its real target tokens, so that parts of an update add up to the whole."""
    return smoothed_loss(model(batch).flatten(0, 1), model.projection, batch.labels.flatten(), smoothing, empty=PAD)
