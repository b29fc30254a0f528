"""The Transformer as a whole: its configuration, what is shared, how it begins, what training and resting change."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from dragoman.batch import Batch, Side
from dragoman.errors import ConfigError
from dragoman.models.interface import choose_device
from dragoman.models.transformer import Transformer, TransformerConfig

VOCABULARY = 31
SMALL = TransformerConfig(layers=2, width=11, hidden=17, heads=3, key_width=5, value_width=7, longest=29)
SOURCES = [[5, 6, 7, 8, 9], [10, 11]]
TARGETS = [[12, 13, 14], [15, 16, 17, 18, 19, 20, 21]]


def small(seed: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(SMALL.model_copy(update=changes), VOCABULARY)


@pytest.mark.parametrize("widths", [{}, {"key_width": 5}, {"value_width": 7}])
def test_heads_that_do_not_divide_the_width_are_refused_by_name(widths: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=r"'model\.heads' = 3 does not divide 'model\.width' = 11"):
        TransformerConfig(width=11, heads=3, **widths)  # type: ignore[arg-type]


def test_a_head_takes_its_share_of_the_width_unless_told_otherwise() -> None:
    assert TransformerConfig(width=33, heads=3).channels == (11, 11)
    assert TransformerConfig(width=33, heads=3, key_width=5).channels == (5, 11)
    assert TransformerConfig(width=33, heads=3, value_width=7).channels == (11, 7)
    assert TransformerConfig(width=11, heads=3, key_width=5, value_width=7).channels == (5, 7)


def test_the_defaults_are_the_base_model_of_table_3() -> None:
    config = TransformerConfig()
    found = (config.layers, config.width, config.hidden, config.heads, config.channels, config.dropout)
    assert found == (6, 512, 2048, 8, (64, 64), 0.1)
    assert (config.positions, config.norm) == ("sinusoidal", "post")


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_the_number_of_parameters_follows_from_the_shape(norm: str, positions: str) -> None:
    model = small(norm=norm, positions=positions)
    layers, width, hidden, heads, key, value = 2, 11, 17, 3, 5, 7
    attention = 2 * width * heads * key + 2 * width * heads * value  # query and key; value and output; no biases
    feed_forward = 2 * width * hidden + hidden + width
    a_norm = 2 * width
    expected = VOCABULARY * width
    expected += layers * (attention + feed_forward + 2 * a_norm)
    expected += layers * (2 * attention + feed_forward + 3 * a_norm)
    expected += 2 * a_norm if norm == "pre" else 0
    expected += 29 * width if positions == "learned" else 0
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_one_vocabulary_means_one_tensor_for_source_target_and_projection() -> None:
    model = small().eval()
    assert model.source_embedding.weight is model.target_embedding.weight
    assert sum("embedding" in name for name, _ in model.named_parameters()) == 1
    batch = Batch.of(SOURCES, TARGETS)
    model.project(model(batch)).sum().backward()
    source, target = {5, 6, 7, 8, 9, 10, 11}, set(range(12, 22))
    assert model.target_embedding.weight.grad is not None
    touched = model.target_embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert source | target <= set(touched)
    # The projection alone touches every piece, the ones in no sentence too.
    assert touched == list(range(VOCABULARY))


def test_a_source_vocabulary_of_its_own_unties_the_source_alone() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL, VOCABULARY, source_vocabulary=37).eval()
    assert model.source_embedding.weight.shape == (37, 11)
    assert model.target_embedding.weight.shape == (VOCABULARY, 11)
    batch = Batch.of([[36, 35]], [[12, 13, 14]])  # ids that only the source's vocabulary has
    hidden = model(batch)
    logits = model.project(hidden)
    assert logits.shape == (1, 4, VOCABULARY)
    torch.testing.assert_close(logits, hidden @ model.target_embedding.weight.T)
    states = model.encode(batch.source).states
    with torch.no_grad():
        model.target_embedding.weight[13] *= 2
    assert torch.equal(model.encode(batch.source).states, states)
    assert (model(batch)[:, 2] - hidden[:, 2]).abs().max() > 1e-3  # position 2 reads piece 13
    torch.testing.assert_close(model.project(hidden)[..., 13], 2 * logits[..., 13])
    model.project(model(batch)).sum().backward()
    assert model.source_embedding.weight.grad is not None
    used = model.source_embedding.weight.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert used == [3, 35, 36]  # the end token and the two pieces


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    model = small().eval()
    received = []
    model.positions.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    batch = Batch.of(SOURCES, TARGETS)
    model(batch)
    model.step(torch.tensor([12, 13]), model.start(memory := model.encode(batch.source), 1), memory)
    sides = (batch.source.ids, batch.target.ids, batch.source.ids, torch.tensor([[12], [13]]))
    for embedded, ids in zip(received, sides, strict=True):
        torch.testing.assert_close(embedded, model.target_embedding.weight[ids] * 11**0.5)


def test_every_matrix_begins_xavier_uniform_and_every_bias_at_zero() -> None:
    torch.manual_seed(0)
    config = TransformerConfig(layers=1, width=128, hidden=256, heads=2, key_width=32, value_width=96)
    model = Transformer(config, 97)
    matrices = [module for module in model.modules() if isinstance(module, nn.Linear)]
    assert len(matrices) == 3 * 4 + 2 * 2
    for matrix in matrices:
        bound = (6 / (matrix.in_features + matrix.out_features)) ** 0.5
        # Thousands of draws come within 1 % of the bound; a uniform variable on +-b has the deviation b / sqrt(3).
        assert 0.99 * bound < matrix.weight.abs().max() <= bound
        assert matrix.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert matrix.bias is None or not matrix.bias.any()
    for norm in (module for module in model.modules() if isinstance(module, nn.LayerNorm)):
        assert (norm.weight == 1).all()
        assert not norm.bias.any()


@pytest.mark.parametrize("source_vocabulary", [None, 401])
def test_embeddings_begin_normal_with_a_variance_of_one_over_the_width(source_vocabulary: int | None) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(layers=1, width=127, hidden=2, heads=1, positions="learned", longest=307)
    model = Transformer(config, 503, source_vocabulary)
    assert model.positions.table is not None
    for weight in (model.target_embedding.weight, model.source_embedding.weight, model.positions.table):
        # Of 38,989 draws or more the deviation is known to 1 / sqrt(2 * 38989) = 0.4 %; five times that is 2 %.
        assert weight.std().item() == pytest.approx(127**-0.5, rel=0.02)
        # Not uniform: a normal variable passes twice its deviation in 4.6 % of the draws.
        assert (weight.abs() > 2 * 127**-0.5).float().mean().item() == pytest.approx(0.0455, rel=0.15)


def test_resting_is_deterministic_and_training_drops_out() -> None:
    model = small(dropout=0.3)
    batch = Batch.of(SOURCES, TARGETS)
    model.eval()
    assert torch.equal(model(batch), model(batch))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    still = small(dropout=0.0)
    still.train()
    trained = still(batch)
    still.eval()
    assert torch.equal(trained, still(batch))


def test_embeddings_and_positions_are_dropped_out_as_a_sum() -> None:
    model = small(dropout=0.5).train()
    given, kept = [], []
    model.positions.register_forward_hook(lambda _, __, output: given.append(output))
    model.encoder[0].register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    model.encode(Side.of(SOURCES))
    share = kept[0] / given[0]
    assert set(share.round(decimals=3).flatten().tolist()) == {0.0, 2.0}


def test_only_pre_norm_ends_with_a_norm_of_its_own() -> None:
    batch = Batch.of(SOURCES, TARGETS)
    for norm in ("post", "pre"):
        model = small(norm=norm).eval()
        for states in (model.encode(batch.source).states, model(batch)):
            # Gains are one and biases zero: what comes last is normalised, once.
            torch.testing.assert_close(states.mean(-1), torch.zeros(states.shape[:2]), atol=1e-5, rtol=0)
            torch.testing.assert_close(
                states.var(-1, unbiased=False), torch.ones(states.shape[:2]), atol=1e-3, rtol=1e-3
            )
        for last in (model.encoder_norm, model.decoder_norm):
            assert len(list(last.parameters())) == (2 if norm == "pre" else 0)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_parameter_learns_from_a_batch(norm: str) -> None:
    model = small(norm=norm, positions="learned")
    hidden = model(Batch.of(SOURCES, TARGETS))
    (hidden * torch.randn(hidden.shape)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_hypotheses_begin_with_empty_caches_at_position_zero() -> None:
    model = small()
    state = model.start(model.encode(Side.of(SOURCES)), 3)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "position": (6,),
        **{f"keys.{layer}": (6, 3, 0, 5) for layer in range(2)},
        **{f"values.{layer}": (6, 3, 0, 7) for layer in range(2)},
    }
    assert not state["position"].any()


def test_memory_keeps_the_rows_it_is_told_to() -> None:
    model = small().eval()
    memory = model.encode(Side.of([*SOURCES, [22, 23, 24]]))
    kept = memory.rows(torch.tensor([0, 2]))
    for whole, part in [
        (memory.states, kept.states),
        (memory.segments, kept.segments),
        *((memory.parts[name], kept.parts[name]) for name in memory.parts),
    ]:
        assert torch.equal(whole[[0, 2]], part)
    assert kept.parts.keys() == memory.parts.keys()


def test_a_device_is_chosen_by_name_and_a_model_knows_its_own() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    absent = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(ConfigError, match=f"no such device on this machine, got {absent}"):
        choose_device(absent)
    for unknown in ("gpu", "cuda:x", "cpu:3", ""):
        with pytest.raises(ConfigError, match=f"no such device on this machine, got {unknown}"):
            choose_device(unknown)
    assert small().device == torch.device("cpu")


@pytest.mark.parametrize("pieces", [4093, 4096, 4099, 8209])
def test_logits_taken_some_pieces_at_a_time_are_those_of_all(pieces: int) -> None:
    model = Transformer(TransformerConfig(layers=1, width=6, hidden=7, heads=1), pieces)
    hidden = torch.randn(3, 6)
    with torch.no_grad():
        torch.testing.assert_close(model.project(hidden), hidden @ model.projection.T)
