"""The laws every model keeps: stepping equals forward, and no sentence depends on what stands beside it.

All in double precision, where a true law holds to 1e-9 and a small leak does not hide behind rounding.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import EOS, PAD, Batch, Side
from dragoman.data.batches import Updates
from dragoman.data.store import Store, StoreWriter
from dragoman.decoding.search import follow
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.training.gradients import summed_loss

VOCABULARY = 31
SHAPES = {
    "narrow heads": {"width": 11, "heads": 3, "key_width": 5, "value_width": 7},
    "one full head": {"width": 13, "heads": 1},
}
VARIANTS = list(product(("post", "pre"), ("sinusoidal", "learned", "none"), SHAPES))
each_model = pytest.mark.parametrize("variant", VARIANTS, ids="-".join)

# No source is as long as its target, and no two are alike in length.
SOURCES = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14], [15], [16, 17, 18, 19, 20]]
TARGETS = [[21, 22, 23, 24, 25, 26], [27, 28], [29, 30, 5, 6, 7], [8, 9, 10]]


def make(variant: tuple[str, str, str], seed: int = 0) -> Transformer:
    """A model with random gains and biases too, so that it does not obey by symmetry."""
    norm, positions, shape = variant
    torch.manual_seed(seed)
    sizes = {"layers": 2, "hidden": 17, "longest": 41, "dropout": 0.3, **SHAPES[shape]}
    config = TransformerConfig.model_validate({**sizes, "norm": norm, "positions": positions})
    model = Transformer(config, VOCABULARY)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.5)
    return model.double().eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def close_losses(found: Tensor, expected: Tensor) -> None:
    """Losses are summed in single precision, whatever the model computes in."""
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def alone(model: Transformer, pair: int) -> Tensor:
    """The hidden states of one pair with nothing beside it."""
    return model(Batch.of([SOURCES[pair]], [TARGETS[pair]]))[0]


def widened(side: Side, more: int) -> Side:
    """The same side with more padding behind it."""
    pad = [nn.functional.pad(tensor, (0, more), value=PAD) for tensor in (side.ids, side.segments, side.positions)]
    return Side(*pad)


def packed(rows: Sequence[Sequence[int]], source_length: int, target_length: int) -> Batch:
    """Several pairs a row, one behind the other, built by hand."""
    empty = torch.zeros(len(rows), source_length, dtype=torch.long)
    wide = torch.zeros(len(rows), target_length, dtype=torch.long)
    source, target = Side(empty, empty.clone(), empty.clone()), Side(wide, wide.clone(), wide.clone())
    labels = torch.full_like(wide, PAD)
    for row, pairs in enumerate(rows):
        ends = [0, 0]
        for segment, pair in enumerate(pairs, start=1):
            one = Batch.of([SOURCES[pair]], [TARGETS[pair]])
            for number, (whole, part) in enumerate(((source, one.source), (target, one.target))):
                place = slice(ends[number], ends[number] + part.ids.shape[1])
                whole.ids[row, place] = part.ids[0]
                whole.segments[row, place] = segment
                whole.positions[row, place] = part.positions[0]
                ends[number] = place.stop
            labels[row, place] = one.labels[0]
    return Batch(source, target, labels)


@each_model
def test_stepping_equals_forward(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = Batch.of(SOURCES, TARGETS)
    expected = model.project(model(batch))
    memory = model.encode(batch.source)
    state = model.start(memory, 1)
    for position in range(batch.target.ids.shape[1]):
        logits, state = model.step(batch.target.ids[:, position], state, memory)
        real = batch.target.segments[:, position] > 0
        close(logits[real], expected[real, position])


@each_model
def test_stepping_equals_forward_for_many_hypotheses_against_one_memory(variant: tuple[str, str, str]) -> None:
    model, beam, length = make(variant), 5, 6
    torch.manual_seed(1)
    targets = torch.randint(4, VOCABULARY, (len(SOURCES) * beam, length))
    batch = Batch.of([source for source in SOURCES for _ in range(beam)], targets.tolist())
    expected = model.project(model(batch))
    memory = model.encode(Side.of([[*source, EOS] for source in SOURCES]))
    assert len(memory.states) == len(SOURCES)
    state = model.start(memory, beam)
    for position in range(length + 1):
        logits, state = model.step(batch.target.ids[:, position], state, memory)
        close(logits, expected[:, position])


@each_model
def test_following_a_beam_goes_on_from_the_chosen_rows(variant: tuple[str, str, str]) -> None:
    model, beam = make(variant), 3
    torch.manual_seed(1)
    memory = model.encode(Side.of([[*source, EOS] for source in SOURCES]))
    state = model.start(memory, beam)
    written = torch.full((len(SOURCES) * beam, 1), 2)
    for _ in range(4):
        logits, state = model.step(written[:, -1], state, memory)
        chosen = torch.randint(beam, (len(SOURCES), beam)) + beam * torch.arange(len(SOURCES))[:, None]
        rows = chosen.flatten()
        state = follow(state, rows)
        written = torch.cat((written[rows], torch.randint(4, VOCABULARY, (len(rows), 1))), dim=1)
    logits, _ = model.step(written[:, -1], state, memory)
    sources = [source for source in SOURCES for _ in range(beam)]
    close(logits, model.project(model(Batch.of(sources, written[:, 1:].tolist())))[:, -1])


@each_model
def test_padding_changes_nothing(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = Batch.of(SOURCES, TARGETS)
    wide = Batch(widened(batch.source, 7), widened(batch.target, 3), nn.functional.pad(batch.labels, (0, 3), value=PAD))
    real = batch.target.segments > 0
    close(model(wide)[:, : real.shape[1]][real], model(batch)[real])
    real = batch.source.segments > 0
    close(model.encode(wide.source).states[:, : real.shape[1]][real], model.encode(batch.source).states[real])
    for smoothing in (0.0, 0.1):
        close_losses(summed_loss(model, wide, smoothing), summed_loss(model, batch, smoothing))


@each_model
def test_what_stands_in_the_padding_changes_nothing(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = Batch.of(SOURCES, TARGETS)
    source, target = (
        Side(torch.where(side.segments > 0, side.ids, 29), side.segments, side.positions)
        for side in (batch.source, batch.target)
    )
    real = batch.target.segments > 0
    close(model(Batch(source, target, batch.labels))[real], model(batch)[real])


@each_model
def test_company_changes_nothing(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    together = model(Batch.of(SOURCES, TARGETS))
    for pair in range(len(SOURCES)):
        one = alone(model, pair)
        close(together[pair, : len(one)], one)


@each_model
def test_packed_sentences_are_what_they_are_alone(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    rows = [[0, 1], [3, 2], []]
    batch = packed(rows, source_length=13, target_length=11)
    hidden, states = model(batch), model.encode(batch.source).states
    assert hidden.isfinite().all()
    total = torch.zeros(())
    for row, pairs in enumerate(rows):
        for segment, pair in enumerate(pairs, start=1):
            one = Batch.of([SOURCES[pair]], [TARGETS[pair]])
            close(hidden[row, batch.target.segments[row] == segment], model(one)[0])
            close(states[row, batch.source.segments[row] == segment], model.encode(one.source).states[0])
            total += summed_loss(model, one, 0.1).detach()
    close_losses(summed_loss(model, batch, 0.1).detach(), total)


def test_updates_of_a_corpus_hold_what_their_pairs_are_alone(tmp_path: Path) -> None:
    model = make(("post", "sinusoidal", "narrow heads"))
    torch.manual_seed(2)
    writer = StoreWriter(tmp_path, "train", VOCABULARY)
    for _ in range(37):
        lengths = torch.randint(1, 9, (2,)).tolist()
        writer.add(*(torch.randint(4, VOCABULARY, (length,)).tolist() for length in lengths))
    writer.close({})
    store = Store(tmp_path, "train", VOCABULARY)
    for keeps_apart in (True, False):
        updates = Updates(store, batch_tokens=97, row_length=19, seed=3, packed=keeps_apart)
        seen: list[int] = []
        for update in updates.epoch(0):
            hidden, number = model(update.batch), 0
            for row, segments in enumerate(update.batch.target.segments):
                for segment in range(1, int(segments.max()) + 1):
                    source, target = (side.tolist() for side in store.pair(update.pairs[number]))
                    close(hidden[row, segments == segment], model(Batch.of([source], [target]))[0])
                    number += 1
            assert number == len(update.pairs)
            seen += update.pairs
        assert sorted(seen) == list(range(37))


@each_model
def test_collecting_the_weights_changes_nothing(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = packed([[0, 1], [3, 2]], source_length=13, target_length=11)
    ends: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    for name, outputs in ends.items():
        last = getattr(model, name)[-1]
        last.register_forward_hook(lambda _, __, output, outputs=outputs: outputs.append(output))
    model(batch)
    model.attention(batch)
    model.encode(batch.source)
    collected: list[Tensor] = []
    model.encode(batch.source, collected)
    for fused, *others in ends.values():
        for other in others:
            close(other, fused)
    assert len(ends["encoder"]) == 4
    assert len(ends["decoder"]) == 2
    for found, again in zip(collected, model.attention(batch).encoder, strict=True):
        close(found, again)


@each_model
def test_weights_sum_to_one_over_what_is_visible_and_are_zero_elsewhere(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = packed([[0, 1], [3, 2]], source_length=13, target_length=11)
    source, target = batch.source.segments, batch.target.segments
    inside = (source[:, :, None] == source[:, None, :]) & (source > 0)[:, None]
    back = (target[:, :, None] == target[:, None, :]) & (target > 0)[:, None]
    across = (target[:, :, None] == source[:, None, :]) & (source > 0)[:, None]
    heads = 3 if "narrow" in variant[2] else 1
    for layers, visible in zip(model.attention(batch), (inside, back.tril(), across), strict=True):
        assert len(layers) == 2
        for weights in layers:
            assert weights.shape == (2, heads, *visible.shape[1:])
            assert not weights.masked_select(~visible[:, None]).any()
            close(weights.sum(-1), visible.any(-1)[:, None].expand(-1, heads, -1).double())


@each_model
def test_a_later_target_token_never_changes_an_earlier_state(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = Batch.of([SOURCES[0]], [TARGETS[0]])
    before = model(batch)
    for changed in range(1, before.shape[1]):
        ids = batch.target.ids.clone()
        ids[0, changed] = 4
        after = model(Batch(batch.source, Side(ids, batch.target.segments, batch.target.positions), batch.labels))
        close(after[:, :changed], before[:, :changed])
        # It does change its own state and all later ones: nothing is kept from them.
        assert ((after - before)[0, changed:].abs().amax(-1) > 1e-6).all()


@each_model
def test_every_source_token_reaches_every_target_position(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    batch = Batch.of([SOURCES[1]], [TARGETS[1]])
    before = model(batch)
    for changed in range(batch.source.ids.shape[1]):
        ids = batch.source.ids.clone()
        ids[0, changed] = 4
        side = Side(ids, batch.source.segments, batch.source.positions)
        assert ((model(Batch(side, batch.target, batch.labels)) - before)[0].abs().amax(-1) > 1e-6).all()


@each_model
def test_order_matters_exactly_where_there_are_positions(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    source = Side.of([[*SOURCES[1], EOS]])
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    states = model.encode(source).states[:, order]
    moved = model.encode(Side(source.ids[:, order], source.segments, source.positions)).states
    if variant[1] == "none":
        close(moved, states)
    else:
        assert (moved - states).abs().amax(-1).min() > 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_model
def test_a_row_that_sees_nothing_is_finite_there_and_back(variant: tuple[str, str, str], dtype: torch.dtype) -> None:
    model = make(variant).to(dtype).train()
    # The second target sentence has no source, the third row is empty; nothing is padding in the first row's source.
    source_segments = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    target_segments = torch.tensor([[1, 1, 2, 2, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    source, target = (
        Side(torch.randint(4, VOCABULARY, each.shape), each, torch.arange(each.shape[1]).expand_as(each).contiguous())
        for each in (source_segments, target_segments)
    )
    batch = Batch(source, target, torch.where(target_segments > 0, 5, PAD))
    loss = summed_loss(model, batch, 0.1)
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    weights = model.attention(batch)
    model.zero_grad()
    sum(each.square().sum() for layers in weights for each in layers).backward()  # type: ignore[union-attr]
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    for layers in weights:
        for each in layers:
            assert each.isfinite().all()
    assert not weights.cross[0][0, :, 2:4].any()


@each_model
def test_silent_sublayers_let_the_input_through(variant: tuple[str, str, str]) -> None:
    model = make(variant)
    for name, parameter in model.named_parameters():
        if "output" in name or "contract" in name:
            nn.init.zeros_(parameter)
    batch = Batch.of(SOURCES, TARGETS)
    given: list[Tensor] = []
    model.dropout.register_forward_hook(lambda _, __, output: given.append(output))
    hidden, states = model(batch), model.encode(batch.source).states
    norms = [
        [module for module in part.modules() if isinstance(module, nn.LayerNorm)]
        for part in (model.encoder, model.decoder)
    ]
    if variant[0] == "pre":
        norms = [[model.encoder_norm], [model.decoder_norm]]
    for found, x, places in zip((states, hidden), given, norms, strict=False):
        for place in places:
            x = place(x)
        close(found, x)
