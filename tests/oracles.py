"""Models whose answers are known, or as sharp as a trained one's, for tests of decoding that train nothing."""

import torch

from dragoman.batch import EOS, Side
from dragoman.models.transformer import Transformer, TransformerConfig

VOCABULARY = 7
PIECES = range(4, VOCABULARY)


def peaked(seed: int, spread: float = 1.5, **changes: object) -> Transformer:
    """A model that knows what it wants, if not why: random weights, made large; one channel of its last norm is
    constant, so that the first column of the embedding says how likely each piece is by itself. In double precision,
    since large weights make rounding large too."""
    torch.manual_seed(seed)
    config = TransformerConfig(layers=2, width=11, hidden=13, heads=3, key_width=5, value_width=7, longest=31)
    model = Transformer(config.model_copy(update=changes), VOCABULARY)
    last = model.decoder[-1].feed_forward_residual.norm
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
        model.target_embedding.weight.mul_(spread)
        last.weight.normal_()
        last.weight[0], last.bias[0] = 0.0, 1.0
        model.target_embedding.weight[:, 0] = torch.tensor([-9.0, -9.0, -9.0, -1.0, 0.0, 0.0, 0.0])
    return model.double().eval()


def model_that_always_says(probabilities: list[float], longest: int = 19) -> Transformer:
    """A Transformer whose last norm says the same at every position: gain zero, bias the first unit vector."""
    model = Transformer(
        TransformerConfig(layers=1, width=3, hidden=5, heads=1, longest=longest), len(probabilities)
    ).eval()
    last = model.decoder[-1].feed_forward_residual.norm
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
        model.target_embedding.weight[:, 0] = torch.tensor(probabilities).log()
    return model


def side(sources: list[list[int]]) -> Side:
    """Sources as a model reads them."""
    return Side.of([[*source, EOS] for source in sources])
