"""Each kernel computes what its plain reference computes, and the same gradients."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dragoman.batch import PAD, Batch
from dragoman.kernels import attention as attending
from dragoman.kernels import cross_entropy as losing
from dragoman.kernels import residual
from dragoman.kernels.attention import Visible, attend
from dragoman.kernels.cross_entropy import smoothed_loss
from dragoman.kernels.residual import add_and_norm
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.training.gradients import summed_loss

pytestmark = pytest.mark.usefixtures("kernels")

HEADS, CHANNELS = 3, 16
# Some sentences are longer than a tile, and some lie across the edge of one.
LENGTHS = [[(5, 3), (1, 7), (71, 23), (17, 79), (2, 2)], [(41, 1), (43, 83)], [(1, 1)]]


def rows(side: int, length: int, device: torch.device) -> Tensor:
    """Segments of rows, of which the last is nearly empty."""
    segments = torch.zeros(len(LENGTHS), length, dtype=torch.long)
    for row, sentences in enumerate(LENGTHS):
        start = 0
        for number, sentence in enumerate(sentences, start=1):
            segments[row, start : start + sentence[side]] = number
            start += sentence[side]
    return segments.to(device)


def close(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    # On a GPU the kernels multiply float32 in TF32, with ten bits behind the point.
    rough = found[0].is_cuda
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-3 if rough else 1e-4, atol=1e-2 if rough else 2e-5)


def gradients(result: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    along = torch.randn(result.shape, generator=generator).to(result.device)
    return torch.autograd.grad(result, inputs, along)


@pytest.mark.parametrize(
    ("which", "window"), [("encoder", None), ("decoder", None), ("cross", None), ("encoder", 1), ("decoder", 5)]
)
def test_attention(which: str, window: int | None, device: torch.device) -> None:
    torch.manual_seed(0)
    source, target = rows(0, 101, device), rows(1, 127, device)
    queries, keys = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}[which]
    visible = Visible.same_sentence(queries, keys, causal=which == "decoder", window=window)
    shapes = [(len(LENGTHS), side.shape[1], HEADS, CHANNELS) for side in (queries, keys, keys)]
    inputs = [torch.randn(shape, device=device, requires_grad=True) for shape in shapes]
    query, key, value = (each.transpose(1, 2) for each in inputs)
    found = attend(query, key, value, visible)
    scores = (query @ key.transpose(2, 3) / CHANNELS**0.5).masked_fill(~visible.mask[:, None], -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)  # a query that sees nothing
    expected = weights @ value
    assert not visible.mask.any(-1).all()
    close([found], [expected])
    close(gradients(found, inputs), [each.nan_to_num(0.0) for each in gradients(expected, inputs)])


def test_attention_over_tensors_that_lie_in_memory_in_another_way(device: torch.device) -> None:
    torch.manual_seed(0)
    segments = rows(0, 97, device)
    visible = Visible.same_sentence(segments, segments)
    apart = torch.randn(3, len(LENGTHS), HEADS, 97, CHANNELS, device=device)  # a head behind the other
    together = torch.randn(len(LENGTHS), 97, 3 * HEADS * CHANNELS, device=device)  # all three in one projection
    packed = together.view(len(LENGTHS), 97, 3, HEADS, CHANNELS).permute(2, 0, 3, 1, 4)
    for query, key, value in (apart, packed):
        plain = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in (query, key, value)]
        close([attend(query, key, value, visible)], [attend(*plain, visible)])


@pytest.mark.parametrize("width", [13, 64])
def test_dropout_residual_and_norm(width: int, device: torch.device) -> None:
    torch.manual_seed(0)
    norm = nn.LayerNorm(width).to(device)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x, y = (torch.randn(3, 11, width, device=device, requires_grad=True) for _ in range(2))
    inputs = (x, y, norm.weight, norm.bias)
    for share in (0.0, 0.3):
        found = add_and_norm(x, y, norm, nn.Dropout(share))
        slopes = gradients(found, inputs)
        kept = slopes[1] != 0  # no gradient reaches what was dropped
        expected = norm(x + torch.where(kept, y / (1 - share), 0.0))
        close([found, *slopes], [expected, *gradients(expected, inputs)])
        assert kept.all() == (share == 0)


def test_dropout_drops_its_share_anew_each_time_and_nothing_when_not_training(device: torch.device) -> None:
    torch.manual_seed(0)
    norm, dropout = nn.LayerNorm(101).to(device), nn.Dropout(0.3)
    x, y = torch.zeros(2, 53, 101, device=device), torch.ones(2, 53, 101, device=device, requires_grad=True)
    draws = [gradients(add_and_norm(x, y, norm, dropout), [y])[0] != 0 for _ in range(3)]
    for kept in draws:
        # 10,706 coins: five standard deviations of the share are 5 * sqrt(0.3 * 0.7 / 10706) = 0.022.
        assert abs(kept.float().mean().item() - 0.7) < 0.022
    # Draws that know nothing of one another agree in 0.7 * 0.7 + 0.3 * 0.3 = 0.58 of all places.
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs((draws[one] == draws[other]).float().mean().item() - 0.58) < 0.024
    # Neighbours know nothing of each other either, along channels and along positions.
    assert abs((draws[0][:, :, 1:] == draws[0][:, :, :-1]).float().mean().item() - 0.58) < 0.024
    assert abs((draws[0][:, 1:] == draws[0][:, :-1]).float().mean().item() - 0.58) < 0.024
    close([add_and_norm(x, y, norm, dropout.eval())], [norm(x + y)])


def test_no_draw_is_another_one_moved_along(device: torch.device) -> None:
    # A hash that adds its seed to a multiple of the place draws the same a place further on, with that multiple more.
    multiple = 0x9E3779B1
    x, ones = torch.zeros(1, 89, 101, device=device), torch.ones(1, 89, 101, device=device)
    weight = torch.ones(101, device=device)
    draws = []
    for seed in (12345, (12345 + multiple) % (1 << 32)):
        seeds = torch.tensor([seed], device=device)
        moments = residual._add_and_norm(x, ones, weight, weight, seeds, 0.5, 1e-5)[1]
        slopes = residual._add_and_norm_backward(torch.randn_like(x), x, ones, weight, seeds, moments, 0.5)
        draws.append((slopes[1] != 0).flatten())
    # 8,988 pairs of fair coins that know nothing of each other: five standard deviations are 0.026.
    assert abs((draws[0][1:] == draws[1][:-1]).float().mean().item() - 0.5) < 0.026


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_projection_and_loss(smoothing: float, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losing, "LOGITS_BYTES", 5 * 64 * 4)  # five positions at a time
    torch.manual_seed(0)
    hidden = torch.randn(13, 7, device=device, requires_grad=True)
    weight = torch.randn(37, 7, device=device, requires_grad=True)
    labels = torch.randint(1, 37, (13,), device=device)
    labels[[3, 12]] = PAD
    found = smoothed_loss(hidden, weight, labels, smoothing, PAD)
    expected = cross_entropy(hidden @ weight.T, labels, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    close([found], [expected])
    slopes, references = (torch.autograd.grad(0.7 * loss, (hidden, weight)) for loss in (found, expected))
    close(slopes, references)


def test_huge_logits_stay_finite(device: torch.device) -> None:
    hidden = torch.tensor([[1000.0, 0.0], [-1000.0, 3.0]], device=device, requires_grad=True)
    weight = torch.randn(37, 2, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    found = smoothed_loss(hidden, weight, torch.tensor([5, 7], device=device), 0.1, PAD)
    expected = cross_entropy(
        hidden @ weight.T, torch.tensor([5, 7], device=device), label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(found, expected)
    assert all(slope.isfinite().all() for slope in torch.autograd.grad(found, (hidden, weight)))


def test_a_model_learns_the_same_with_kernels_and_without(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(layers=1, width=32, hidden=23, heads=2, dropout=0.0)
    model = Transformer(config, 41).to(device)
    batch = Batch.of([[5, 6, 7, 8], [9, 10]], [[11, 12], [13, 14, 15]]).to(device)
    found = summed_loss(model, batch, 0.1)
    slopes = torch.autograd.grad(found, list(model.parameters()))
    for module in (attending, losing):
        monkeypatch.setattr(module, "has_kernel", lambda *_: False)
    monkeypatch.setattr("dragoman.kernels.residual.has_kernel", lambda *_: False)
    expected = summed_loss(model, batch, 0.1)
    close([found, *slopes], [expected, *torch.autograd.grad(expected, list(model.parameters()))])


def test_one_interval_for_all_queries_is_left_to_torch(device: torch.device) -> None:
    torch.manual_seed(0)
    segments = rows(0, 97, device)
    one = Visible.same_sentence(torch.ones_like(segments[:, :1]), segments)
    every = Visible.same_sentence(torch.ones_like(segments[:, :17]), segments)
    query = torch.randn(len(LENGTHS), HEADS, 17, CHANNELS, device=device)
    key, value = (torch.randn(len(LENGTHS), HEADS, 97, CHANNELS, device=device) for _ in range(2))
    close([attend(query, key, value, one)], [attend(query, key, value, every)])
