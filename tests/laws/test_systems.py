"""The laws of tests/laws/test_models.py that every system keeps, whatever it is made of."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import BOS, EOS, Batch, Side
from dragoman.decoding.search import follow
from dragoman.models.interface import Model
from dragoman.recipe import Recipe
from tests.laws.test_models import SOURCES, TARGETS, VOCABULARY, close, packed, widened

RECURRENT = {"kind": "recurrent", "width": 14, "layers": 2, "dropout": 0.3, "longest": 41}
TRANSFORMER = {"layers": 2, "width": 12, "hidden": 17, "heads": 4, "dropout": 0.3, "longest": 41}
SYSTEMS: dict[str, dict[str, Any]] = {
    "restricted": {**TRANSFORMER, "window": 1},
    **{
        name: {**TRANSFORMER, **keys}
        for name, keys in {
            "pre-norm": {"norm": "pre"},
            "rms": {"norm_kind": "rms"},
            "batch": {"norm_kind": "batch"},
            "batch-before": {"norm_kind": "batch", "norm": "pre"},
            "unnormalised": {"norm_kind": "none"},
            "nothing-carried": {
                "residual": False,
                "layers": 1,
            },  # in two, with random weights, all positions grow alike
            "nothing-carried-before": {"residual": False, "norm": "pre", "norm_kind": "batch"},
            "swiglu": {"feed_forward": "swiglu"},
            "rotary": {"positions": "rotary"},
            "grouped": {"key_heads": 2},
            "shallow": {"decoder_layers": 1},
            "modern": {
                "norm": "pre",
                "norm_kind": "rms",
                "feed_forward": "swiglu",
                "positions": "rotary",
                "key_heads": 1,
            },
        }.items()
    },
    "rnn": {**RECURRENT, "cell": "rnn"},
    "cho": {**RECURRENT, "cell": "gru", "summary": "always"},
    "sutskever": {**RECURRENT, "reads": "backward"},
    "bahdanau": {**RECURRENT, "cell": "gru", "reads": "both", "attention": "additive", "looks": "before"},
    "luong-dot": {**RECURRENT, "attention": "dot"},
    "luong-general": {**RECURRENT, "attention": "general"},
    "luong-concat": {**RECURRENT, "attention": "concat", "reads": "both"},
    "luong-monotonic": {**RECURRENT, "attention": "general", "sight": "monotonic", "window": 1},
    "luong-predictive": {**RECURRENT, "attention": "scaled-dot", "sight": "predictive", "window": 2},
    **{
        f"gpt-{norm}-{positions}": {**TRANSFORMER, "kind": "language-model", "norm": norm, "positions": positions}
        for norm, positions in (("pre", "learned"), ("post", "sinusoidal"), ("pre", "rotary"))
    },
    "lstmn": {"kind": "lstmn", "width": 13, "dropout": 0.3, "longest": 41},
    "convs2s": {"kind": "convs2s", "layers": 3, "width": 13, "dropout": 0.3, "longest": 41},
    "bytenet": {"kind": "bytenet", "layers": 4, "width": 13, "dropout": 0.3, "longest": 41},
    "neural-gpu": {"kind": "neural-gpu", "layers": 2, "width": 13, "dropout": 0.3, "longest": 41},
    "wu": {**RECURRENT, "layers": 3, "reads": "both", "residual": True, "attention": "additive", "looks": "before"},
}
each_system = pytest.mark.parametrize("name", SYSTEMS)


def make(name: str) -> Model:
    torch.manual_seed(0)
    model = Recipe.model_validate({"model": SYSTEMS[name], "training": {"row_length": 31}}).model.build(VOCABULARY)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    for place, counted in model.named_buffers():
        if place in model.state_dict():  # as if it had been trained
            counted.uniform_(0.5, 1.5)
    return model.double().eval()


def steps(model: Model, batch: Batch, source: Side, beam: int) -> Tensor:
    memory = model.encode(source)
    state = model.start(memory, beam)
    logits = []
    for tokens in batch.target.ids.T:
        each, state = model.step(tokens, state, memory)
        logits.append(each)
    return torch.stack(logits, dim=1)


@each_system
def test_stepping_equals_forward(name: str) -> None:
    model, batch = make(name), Batch.of(SOURCES, TARGETS)
    expected = model.project(model(batch))
    real = batch.target.segments > 0
    close(steps(model, batch, batch.source, 1)[real], expected[real])


@each_system
def test_stepping_equals_forward_for_many_hypotheses_against_one_memory(name: str) -> None:
    model, beam, length = make(name), 5, 6
    targets = torch.randint(4, VOCABULARY, (len(SOURCES) * beam, length))
    batch = Batch.of([source for source in SOURCES for _ in range(beam)], targets.tolist())
    expected = model.project(model(batch))
    close(steps(model, batch, Side.of([[*source, EOS] for source in SOURCES]), beam), expected)


@each_system
def test_following_a_beam_goes_on_from_the_chosen_rows(name: str) -> None:
    model, beam = make(name), 3
    memory = model.encode(Side.of([[*source, EOS] for source in SOURCES]))
    state = model.start(memory, beam)
    written = torch.randint(4, VOCABULARY, (len(SOURCES) * beam, 3))
    written[:, 0] = BOS
    for tokens in written.T[:2]:
        _, state = model.step(tokens, state, memory)
    chosen = torch.tensor([row // beam * beam + (row * 2 + 1) % beam for row in range(len(written))])
    followed, _ = model.step(written[:, 2], follow(state, chosen), memory)
    targets = torch.cat((written[chosen, 1:2], written[:, 2:]), dim=1).tolist()
    batch = Batch.of([source for source in SOURCES for _ in range(beam)], targets)
    close(followed, model.project(model(batch))[:, 2])


@each_system
def test_padding_and_company_change_nothing(name: str) -> None:
    model = make(name)
    together = Batch.of(SOURCES, TARGETS)
    wide = Batch(widened(together.source, 3), widened(together.target, 5), nn.functional.pad(together.labels, (0, 5)))
    for pair, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        expected = model(Batch.of([source], [target]))[0]
        for batch in (together, wide):
            close(model(batch)[pair, : len(target) + 1], expected)


@each_system
def test_packed_sentences_are_what_they_are_alone(name: str) -> None:
    model = make(name)
    rows = [[2, 0], [3, 1]]
    hidden = model(packed(rows, 17, 13))
    for row, pairs in enumerate(rows):
        start = 0
        for pair in pairs:
            expected = model(Batch.of([SOURCES[pair]], [TARGETS[pair]]))[0]
            close(hidden[row, start : start + len(expected)], expected)
            start += len(expected)


@each_system
def test_a_later_target_token_never_changes_an_earlier_state(name: str) -> None:
    model, batch = make(name), Batch.of(SOURCES[:1], TARGETS[:1])
    before = model(batch)
    batch.target.ids[0, 4] = 19
    after = model(batch)
    close(after[0, :4], before[0, :4])
    assert not torch.allclose(after[0, 4:], before[0, 4:])


@pytest.mark.parametrize("name", [name for name, keys in SYSTEMS.items() if keys.get("sight", "all") == "all"])
def test_every_source_token_reaches_the_last_target_position(name: str) -> None:
    model, batch = make(name), Batch.of(SOURCES[1:2], TARGETS[1:2])
    before = model(batch)
    for position in range(len(SOURCES[1])):
        changed = Side(batch.source.ids.clone(), batch.source.segments, batch.source.positions)
        changed.ids[0, position] = 30
        assert not torch.allclose(model(Batch(changed, batch.target, batch.labels))[0, -1], before[0, -1])


@each_system
def test_weights_are_positive_and_stay_inside_the_sentence(name: str) -> None:
    model, batch = make(name), packed([[2, 0], [3, 1]], 17, 13)
    maps = model.attention(batch)
    if SYSTEMS[name].get("kind") == "recurrent":
        assert len(maps.cross) == (SYSTEMS[name].get("attention", "none") != "none")
    same = batch.target.segments[:, :, None] == batch.source.segments[:, None]
    real = batch.target.segments > 0
    for number, weights in enumerate(maps.cross):
        assert weights.shape[2:] == (13, 17)
        assert not weights.amax(1)[~(same & real[:, :, None])].any()
        sums = weights.mean(1).sum(-1)[real]
        if SYSTEMS[name].get("kind") == "language-model":  # one attention for both sides
            sums = sums + maps.decoder[number].mean(1).sum(-1)[real]
        if SYSTEMS[name].get("sight") == "predictive":  # weighted by a bell, as published
            assert (sums <= 1 + 1e-9).all()
        else:
            close(sums, torch.ones_like(sums))


@each_system
def test_a_seed_makes_one_model_of_two_vocabularies(name: str) -> None:
    config = Recipe.model_validate({"model": SYSTEMS[name], "training": {"row_length": 31}}).model
    models: list[Model] = []  # all are kept: what lies where in memory must not decide what is drawn first
    for _ in range(13):
        torch.manual_seed(0)
        models.append(config.build(VOCABULARY, 17))
    for model in models[1:]:
        for one, other in zip(models[0].parameters(), model.parameters(), strict=True):
            assert torch.equal(one, other)


@each_system
def test_every_parameter_learns(name: str) -> None:
    model, batch = make(name).train(), packed([[2, 0], [3, 1]], 17, 13)
    model.project(model(batch))[batch.target.segments > 0].log_softmax(-1)[:, 5].sum().backward()
    assert [
        each for each, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ] == []


@pytest.mark.parametrize("name", ["batch", "batch-before"])
def test_while_it_trains_a_batch_norm_counts_what_is_real_however_it_is_laid_out(name: str) -> None:
    rows, padded = [[2, 0], [3, 1]], Batch.of(SOURCES, TARGETS)
    models = [make(name) for _ in range(3)]
    for model in models:
        for module in model.modules():
            module.train(not isinstance(module, nn.Dropout))
    alike = [models[0](padded), models[1](packed(rows, 17, 13)), models[2](packed([*rows, []], 19, 29))]
    lengths = [len(target) + 1 for target in TARGETS]
    for hidden in alike[1:]:
        for row, pairs in enumerate(rows):
            start = 0
            for pair in pairs:
                close(hidden[row, start : start + lengths[pair]], alike[0][pair, : lengths[pair]])
                start += lengths[pair]
    for model in models[1:]:
        for place, counted in model.kept().items():
            close(counted, models[0].kept()[place])
