"""The loss, what it adds up to and leaves out, and the gradient of an update, recorded or not."""

from collections.abc import Callable
from math import log
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from dragoman.batch import PAD, Batch, Side
from dragoman.data.batches import Update
from dragoman.decoding.scoring import score
from dragoman.models.interface import Model
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import TrainingConfig
from dragoman.training import gradients
from dragoman.training.gradients import Gradients, Recording, gradients_by_parameter, summed_loss
from dragoman.training.schedule import Progress

VOCABULARY = 23
SOURCES = [[5, 6, 7, 8, 9], [10], [11, 12]]
TARGETS = [[12, 13, 14], [15, 16, 17, 18, 19, 20, 21], [22]]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(layers=1, width=11, hidden=17, heads=3, key_width=5, value_width=7)
    return Transformer(config, VOCABULARY).eval()


def test_without_smoothing_the_loss_is_what_scoring_says(model: Transformer) -> None:
    expected = -sum(each.log_probability for each in score([model], SOURCES, TARGETS))
    assert summed_loss(model, Batch.of(SOURCES, TARGETS), 0.0).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_parts_of_a_batch_add_up_to_the_whole(model: Transformer, smoothing: float) -> None:
    batch = Batch.of(SOURCES, TARGETS)
    whole = summed_loss(model, batch, smoothing)
    parts = [summed_loss(model, batch.rows(first, last), smoothing) for first, last in ((0, 1), (1, 3))]
    torch.testing.assert_close(sum(parts), whole)


def test_smoothing_mixes_the_loss_with_that_of_guessing_evenly(model: Transformer) -> None:
    # (1 - eps) times the label's cost plus eps times the mean cost of all pieces.
    batch = Batch.of(SOURCES, TARGETS)
    costs = -model.project(model(batch)).log_softmax(-1)[batch.labels != PAD]
    labels = batch.labels[batch.labels != PAD]
    label, evenly = costs.gather(1, labels[:, None]).sum(), costs.mean(1).sum()
    for smoothing in (0.1, 0.5):
        expected = (1 - smoothing) * label + smoothing * evenly
        torch.testing.assert_close(summed_loss(model, batch, smoothing), expected)


def test_padding_costs_nothing_and_teaches_nothing(model: Transformer) -> None:
    batch = Batch.of(SOURCES[:1], TARGETS[:1])
    empty = Batch(batch.source, batch.target, torch.full_like(batch.labels, PAD))
    loss = summed_loss(model, empty, 0.1)
    assert loss.item() == 0.0
    loss.backward()
    assert not any(parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


def test_the_gradient_is_zero_where_the_model_says_what_the_smoothed_labels_say() -> None:
    # The smoothed target is q = (1 - eps) onehot + eps / V; cross entropy with q has the gradient p - q in the logits.
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(layers=1, width=3, hidden=5, heads=1), 7)
    smoothing, label = 0.2, 3  # every label is EOS
    last = model.decoder[-1].feed_forward_residual.norm
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
        smoothed = [smoothing / 7 + (1 - smoothing) * (piece == label) for piece in range(7)]
        model.target_embedding.weight[:, 0] = torch.tensor(smoothed).log()
    loss = summed_loss(model, Batch.of([[4, 5]], [[]]), smoothing)
    loss.backward()
    assert loss.item() == pytest.approx(-sum(share * log(share) for share in smoothed), rel=1e-5)
    assert last.bias.grad is not None
    assert last.bias.grad[0].item() == pytest.approx(0, abs=1e-6)


def test_the_loss_is_summed_in_single_precision_whatever_the_model_computes_in(model: Transformer) -> None:
    batch = Batch.of(SOURCES, TARGETS)
    expected = summed_loss(model, batch, 0.1)
    halved = summed_loss(model.bfloat16(), batch, 0.1)
    assert halved.dtype == torch.float32
    # bfloat16 keeps eight bits: hidden states, and with them the loss, are right to about 2^-8.
    assert halved.item() == pytest.approx(expected.item(), rel=0.02)


def test_the_order_of_pairs_does_not_matter_but_who_is_paired_does(model: Transformer) -> None:
    batch = Batch.of(SOURCES, TARGETS)
    source, target = (
        Side(*(tensor.roll(1, dims=0) for tensor in vars(each).values())) for each in (batch.source, batch.target)
    )
    labels = batch.labels.roll(1, dims=0)
    expected = summed_loss(model, batch, 0.1)
    torch.testing.assert_close(summed_loss(model, Batch(source, target, labels), 0.1), expected)
    strangers = summed_loss(model, Batch(batch.source, target, labels), 0.1)
    assert strangers.item() != pytest.approx(expected.item(), rel=1e-4)


class Rehearsal(Recording):
    """A recording without a GPU: replaying it runs the function again, over the recording's own batch."""

    def __init__(self, run: Callable[[Batch, Tensor], Tensor], model: Model, batch: Batch, tokens: Tensor) -> None:
        self.batch, self.tokens = batch.map(Tensor.clone), tokens.clone()
        self.loss = run(self.batch, self.tokens)
        self.gradients = gradients_by_parameter(model)

        def replay() -> None:
            model.zero_grad()
            self.loss.copy_(run(self.batch, self.tokens))
            for parameter, gradient in self.gradients.items():
                assert parameter.grad is not None
                gradient.copy_(parameter.grad)  # a graph writes to the same memory every time

        self.graph = SimpleNamespace(replay=replay)


def all_gradients(model: Transformer) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_recording_leaves_the_gradient_of_each_update_and_nothing_of_those_before(
    model: Transformer, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same three pairs in several orders: so many real tokens in a rectangle of one shape.
    orders = ([0, 1, 2], [2, 0, 1], [1, 1, 0])
    updates = [
        Update(
            Batch.of([SOURCES[n] for n in order], [TARGETS[n] for n in order]),
            order,
            sum(len(TARGETS[n]) + 1 for n in order),
        )
        for order in orders
    ]
    plain, recorded = (Gradients(model, TrainingConfig()) for _ in range(2))
    expected = [(plain.of(update, Progress()), all_gradients(model)) for update in updates]
    monkeypatch.setattr(gradients, "Recording", Rehearsal)
    recorded._is_recorded = True
    before = [tensor.clone() for update in updates for tensor in update.batch.tensors()]
    for update, (loss, slopes) in zip(updates, expected, strict=True):
        torch.testing.assert_close(recorded.of(update, Progress(rows_at_once=rows)), loss)
        for one, other in zip(all_gradients(model), slopes, strict=True):
            torch.testing.assert_close(one, other)
    after = [tensor for update in updates for tensor in update.batch.tensors()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_where_a_step_cannot_be_recorded_it_runs_as_it_is_and_that_is_said_once(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> Recording:
        raise RuntimeError("CUDA error: operation not permitted\nand more")

    update = Update(Batch.of(SOURCES, TARGETS), [0, 1, 2], sum(map(len, TARGETS)) + 3)
    expected = Gradients(model, TrainingConfig()).of(update, Progress())
    monkeypatch.setattr(gradients, "Recording", refuse)
    recorded = Gradients(model, TrainingConfig())
    recorded._is_recorded = True
    for _ in range(2):
        torch.testing.assert_close(recorded.of(update, Progress()), expected)
    assert [record.message for record in caplog.records] == [
        "a step cannot be recorded here, and runs as it is: CUDA error: operation not permitted"
    ]
