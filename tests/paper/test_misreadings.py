"""What is often misread in the paper: each test computes the misreading beside what the paper says and what we do.

docs/misreadings.md tells each in words and names its test. Where the two agree by accident, the test says so too: that
is how a misreading survives.
"""

import ast
import re
from functools import cache, partial
from math import exp, log, sqrt
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dragoman.batch import BOS, EOS, PAD, Batch, Side
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.decoding.scoring import Score, score
from dragoman.decoding.search import length_penalty, search
from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import bleu, plain_bleu
from dragoman.evaluation.report import perplexity
from dragoman.kernels.attention import Visible, attention_weights
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.language_model import LanguageModelConfig
from dragoman.models.layers import EncoderLayer, FeedForward, Residual
from dragoman.models.positions import sinusoids
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import DecodingConfig, TrainingConfig, read_recipe
from dragoman.training.gradients import summed_loss
from dragoman.training.schedule import learning_rate
from tests import oracles
from tests.oracles import PIECES, model_that_always_says, side

ROOT = Path(__file__).parents[2]
# Heads that share the width, as in the paper: where shapes agree by themselves, nothing warns of a mistake.
HEADS, CHANNELS = 3, 7
WIDTH = HEADS * CHANNELS
ROWS, QUERIES, KEYS = 2, 11, 13
VOCABULARY = 31

agree = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def differ(misread: Tensor, right: Tensor) -> bool:
    """By far more than rounding; what is not a number agrees with nothing."""
    return not torch.allclose(misread, right, rtol=1e-3, atol=1e-3)


def attention_of(heads: int = HEADS) -> MultiHeadAttention:
    torch.manual_seed(heads)
    return MultiHeadAttention(WIDTH, heads, WIDTH // heads, WIDTH // heads).double()


def draw(length: int, seed: int = 0, width: int = WIDTH) -> Tensor:
    return torch.randn(ROWS, length, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def everything(length: int, rows: int = ROWS, causal: bool = False) -> Visible:
    ones = torch.ones(rows, length, dtype=torch.long)
    return Visible.same_sentence(ones, ones, causal=causal)


def projected(attention: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The queries, keys and values of self-attention."""
    return attention.split(attention.query(x), attention.heads), *attention.keys_values(x)


def joined(attention: MultiHeadAttention, mixed: Tensor) -> Tensor:
    """Concat(head_1, ..., head_h) W^O."""
    return attention.output(mixed.transpose(1, 2).flatten(2))


def share_of(attention: MultiHeadAttention, head: int, x: Tensor) -> Tensor:
    """What one head alone adds: its columns of W^O times what it found."""
    query, key, value = (each[:, head : head + 1] for each in projected(attention, x))
    width = WIDTH // attention.heads
    found = (attention_weights(query, key, None) @ value)[:, 0]
    return found @ attention.output.weight[:, head * width : (head + 1) * width].T


def small(seed: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    config = TransformerConfig(layers=2, width=WIDTH, hidden=17, heads=HEADS, dropout=0.0, longest=29)
    return Transformer(config.model_copy(update=changes), VOCABULARY).double().eval()


# Attention


def test_the_divisor_is_the_root_of_one_heads_key_width() -> None:
    attention, x = attention_of(), draw(KEYS)
    query, key, _ = projected(attention, x)
    right, misread = ((query @ key.mT / sqrt(width)).softmax(-1) for width in (CHANNELS, WIDTH))
    weights: list[Tensor] = []
    attention(x, attention.keys_values(x), None, weights)
    agree(weights[0], right)
    assert differ(misread, right)
    query, key, _ = projected(attention_of(heads=1), x)  # one head has the whole width for itself
    agree((query @ key.mT / sqrt(WIDTH)).softmax(-1), attention_weights(query, key, None))


def test_without_the_divisor_the_gradient_gets_too_small_and_the_softmax_does_not() -> None:
    width, queries, keys = 1009, 101, 31
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, length, width, generator=generator).double() for length in (queries, keys))
    products = query @ key.mT
    # "Their dot product has mean 0 and variance d_k": 3131 of them tell the variance to 2.5 %, thrice that is allowed.
    assert products.var().item() == pytest.approx(width, rel=0.075)
    unscaled, scaled = products.softmax(-1), attention_weights(query, key, None)
    # Neither softmax is small: both sum to one, and the largest weight is larger without the divisor.
    agree(unscaled.sum(-1), scaled.sum(-1))
    assert unscaled.amax(-1).mean() > 2 * scaled.amax(-1).mean()
    # Its gradient is: dp_i / ds_j = p_i (1[i = j] - p_j), whose trace is 1 - sum p^2.
    slopes = [1 - weights.square().sum(-1).mean().item() for weights in (unscaled, scaled)]
    assert slopes[0] < slopes[1] / 5


def test_each_query_spreads_one_over_the_keys_and_not_each_key_over_the_queries() -> None:
    query, key, _ = projected(attention_of(), draw(KEYS))
    scores = query @ key.mT / sqrt(CHANNELS)
    right, misread = scores.softmax(-1), scores.softmax(-2)
    agree(attention_weights(query, key, None), right)
    assert differ(misread.sum(-1), torch.ones(ROWS, HEADS, KEYS, dtype=torch.float64))
    # A query that is taken away changes what the others find: so later positions reach earlier ones, past any mask.
    agree(attention_weights(query[:, :, :-1], key, None), right[:, :, :-1])
    assert differ(scores[:, :, :-1].softmax(-2), misread[:, :, :-1])
    # Nothing fails: as many queries as keys, and where both are the same the misreading is the transpose.
    same = key @ key.mT / sqrt(CHANNELS)
    agree(same.softmax(-2), attention_weights(key, key, None).mT)


def test_values_are_a_projection_of_their_own() -> None:
    attention, x = attention_of(), draw(KEYS)
    query, key, value = projected(attention, x)
    weights = attention_weights(query, key, None)
    right = attention(x, attention.keys_values(x), None)
    agree(joined(attention, weights @ value), right)
    for instead in (query, key):  # as many channels: nothing fails
        assert differ(joined(attention, weights @ instead), right)
    with torch.no_grad():
        attention.value.weight.copy_(attention.key.weight)
    agree(joined(attention, weights @ key), attention(x, attention.keys_values(x), None))


def test_the_residual_carries_the_layers_input_and_not_its_projected_query() -> None:
    parts = (attention_of, partial(FeedForward, WIDTH, 17), partial(Residual, WIDTH, 0.0, "post"))
    layer, x = EncoderLayer(*parts).double(), draw(KEYS)
    entered: list[Tensor] = []
    layer.feed_forward.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    look, norm = layer.self_attention, layer.self_attention_residual.norm

    def right_and_misread() -> tuple[Tensor, Tensor]:
        found = look(x, look.keys_values(x), None)
        return norm(x + found), norm(look.query(x) + found)

    right, misread = right_and_misread()
    layer(x, everything(KEYS))
    agree(entered[0], right)
    assert differ(misread, right)
    with torch.no_grad():
        look.query.weight.copy_(torch.eye(WIDTH))  # a query that is the input
    agree(*right_and_misread())


def test_keys_are_split_by_their_own_length_and_not_by_the_queries() -> None:
    attention, queries, memory = attention_of(), draw(QUERIES), draw(KEYS, seed=1)

    def misread(length: int) -> Tensor:
        return attention.key(memory).view(ROWS, length, HEADS, CHANNELS).transpose(1, 2)

    agree(misread(KEYS), attention.keys_values(memory).keys)  # self-attention hides it
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        misread(QUERIES)
    assert attention(queries, attention.keys_values(memory), None).shape == queries.shape


def test_heads_are_cut_out_of_the_channels_and_not_out_of_the_positions() -> None:
    attention, x = attention_of(), draw(KEYS)

    def misread(given: Tensor) -> Tensor:  # a view in place of a view and a transposition: of the same shape
        return attention.key(given).view(ROWS, HEADS, KEYS, CHANNELS)

    right = attention.keys_values(x).keys
    assert misread(x).shape == right.shape
    assert differ(misread(x), right)
    later = x.clone()
    later[:, -1] += 1.0
    moved = (attention.keys_values(later).keys - right).abs().amax(dim=(0, 1, 3)) > 0
    assert moved.nonzero().flatten().tolist() == [KEYS - 1]
    moved = (misread(later) - misread(x)).abs().amax(dim=(0, 1, 3)) > 0
    assert moved.nonzero().flatten().tolist() == list(range(KEYS - HEADS, KEYS))  # earlier keys tell of the last word
    alone = attention_of(heads=1)
    agree(alone.key(x).view(ROWS, 1, KEYS, WIDTH), alone.keys_values(x).keys)


def test_every_head_projects_the_whole_embedding_and_not_its_slice() -> None:
    attention, x = attention_of(), draw(1).requires_grad_()
    of_our_head = torch.autograd.grad(attention.keys_values(x).keys[:, 0].sum(), x)[0]
    slices = nn.Linear(CHANNELS, CHANNELS, bias=False).double()
    cut = slices(x.view(ROWS, 1, HEADS, CHANNELS))
    of_a_slice = torch.autograd.grad(cut[:, :, 0].sum(), x)[0]
    assert (of_our_head != 0).all()
    assert (of_a_slice != 0).flatten(0, 1).any(0).tolist() == [True] * CHANNELS + [False] * (WIDTH - CHANNELS)
    # W_i^K is d_model x d_k for each of the heads.
    assert attention.key.weight.numel() == HEADS * WIDTH * CHANNELS
    assert slices.weight.numel() == CHANNELS**2


def test_heads_share_the_width_and_cost_no_more_than_one() -> None:
    def count(attention: nn.Module) -> int:
        return sum(parameter.numel() for parameter in attention.parameters())

    assert TransformerConfig().channels == (512 // 8, 512 // 8)
    assert count(attention_of(heads=HEADS)) == count(attention_of(heads=1))
    assert count(MultiHeadAttention(WIDTH, HEADS, WIDTH, WIDTH)) == HEADS * count(attention_of(heads=1))


def test_heads_stand_side_by_side_and_not_in_series() -> None:
    attention, x = attention_of(), draw(KEYS)

    def in_series(heads: list[int]) -> Tensor:
        y = x
        for head in heads:
            y = share_of(attention, head, y)
        return y

    right = attention(x, attention.keys_values(x), None)
    agree(sum(share_of(attention, head, x) for head in range(HEADS)), right)  # side by side they have no order
    assert differ(in_series([0, 1, 2]), right)
    assert differ(in_series([2, 1, 0]), in_series([0, 1, 2]))
    alone = attention_of(heads=1)
    agree(share_of(alone, 0, x), alone(x, alone.keys_values(x), None))


def test_projections_have_no_biases_and_a_bias_of_keys_would_do_nothing() -> None:
    attention, x = attention_of(), draw(KEYS)
    assert all(getattr(attention, name).bias is None for name in ("query", "key", "value", "output"))
    query, key, _ = projected(attention, x)
    bias = draw(1, width=CHANNELS)[:, None]
    right = attention_weights(query, key, None)
    agree(attention_weights(query, key + bias, None), right)  # q . b is added to every score of q alike
    assert differ(attention_weights(query + bias, key, None), right)


def test_dropout_falls_on_no_weight() -> None:
    model, x = small(dropout=0.5).train(), draw(KEYS)
    attention = model.encoder[0].self_attention
    for collected in ([], None):  # explicit and fused
        once, again = (attention(x, attention.keys_values(x), everything(KEYS), collected) for _ in range(2))
        assert torch.equal(once, again)
    for weights in model.attention(Batch.of([[5, 6, 7, 8, 9]], [[10, 11]])).encoder:
        assert (weights > 0).all()
        agree(weights.sum(-1), torch.ones_like(weights[..., 0]))
        dropped = nn.functional.dropout(weights, 0.5)
        assert (dropped == 0).any()
        assert differ(dropped.sum(-1), torch.ones_like(weights[..., 0]))


# What may be seen


def test_every_target_position_sees_the_whole_source() -> None:
    source, target = [5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15, 16]
    batch = Batch.of([source], [target])
    maps = small().attention(batch).cross
    assert all((weights > 0).all() for weights in maps)
    query, key = draw(8, width=CHANNELS)[:1, None], draw(6, seed=1, width=CHANNELS)[:1, None]
    right = attention_weights(query, key, None)
    later = torch.ones(8, 6, dtype=torch.bool).triu(1)
    misread = (query @ key.mT / sqrt(CHANNELS)).masked_fill(later, -torch.inf).softmax(-1)
    # The first word would be chosen by the first source word alone, the second by two, ...
    assert (misread[0, 0] > 0).sum(-1).tolist() == [1, 2, 3, 4, 5, 6, 6, 6]
    assert differ(misread[:, :, :5], right[:, :, :5])
    agree(misread[:, :, 5:], right[:, :, 5:])  # ... until the target is as long as the source


def test_a_position_sees_itself() -> None:
    mask = everything(5, rows=1, causal=True).mask
    assert torch.equal(mask[0], torch.ones(5, 5, dtype=torch.bool).tril())
    strict = torch.ones(5, 5, dtype=torch.bool).tril(-1)
    scores = draw(5, width=5)
    assert not scores.masked_fill(~mask, -torch.inf).softmax(-1).isnan().any()
    misread = scores.masked_fill(~strict, -torch.inf).softmax(-1)
    assert misread.isnan().any(-1)[0].tolist() == [True, False, False, False, False]  # a softmax over nothing
    model = small()
    # What a position reads is the piece written last: nothing else brings it in.
    for weights in model.attention(Batch.of([[5, 6]], [[7, 8, 9]])).decoder:
        assert (weights.diagonal(dim1=-2, dim2=-1) > 0).all()


def test_padding_is_hidden_as_a_key_and_not_as_a_query() -> None:
    segments = torch.tensor([[1] * 5 + [0] * (KEYS - 5)] * ROWS)
    x = draw(KEYS)
    other = x.clone()
    other[:, 5:] += 1.0  # what stands in the padding must not matter
    attention, visible = attention_of(), Visible.same_sentence(segments, segments)
    right = [attention(each, attention.keys_values(each), visible)[:, :5] for each in (x, other)]
    agree(*right)

    def misread(given: Tensor) -> Tensor:
        query, key, value = projected(attention, given)
        scores = (query @ key.mT / sqrt(CHANNELS)).masked_fill(segments[:, None, :, None] == 0, -1e9)
        return joined(attention, scores.softmax(-1) @ value)[:, :5]

    assert differ(misread(other), misread(x))
    assert differ(misread(x), right[0])


def test_what_is_hidden_is_hidden_before_the_softmax() -> None:
    query, key, _ = projected(attention_of(), draw(KEYS))
    causal = everything(KEYS, causal=True)
    right = attention_weights(query, key, causal)
    misread = attention_weights(query, key, None).masked_fill(~causal.mask[:, None], 0.0)
    agree(right.sum(-1), torch.ones_like(right[..., 0]))
    assert differ(misread.sum(-1), torch.ones_like(right[..., 0]))
    # And a later key changes the weights of earlier ones: its score is in their denominator.
    later = key.clone()
    later[:, :, -1] *= 3
    agree(attention_weights(query, later, causal)[:, :, :-1], right[:, :, :-1])
    again = attention_weights(query, later, None).masked_fill(~causal.mask[:, None], 0.0)
    assert differ(again[:, :, :-1], misread[:, :, :-1])
    agree(misread[:, :, -1], right[:, :, -1])  # the last position sees all
    # Hidden before the scaling or behind it is the same.
    hidden, products = ~causal.mask[:, None], query @ key.mT
    agree((products.masked_fill(hidden, -torch.inf) / sqrt(CHANNELS)).softmax(-1), right)


def test_a_large_number_is_no_infinity_in_half_precision_nor_where_nothing_is_seen() -> None:
    scores, hidden = draw(KEYS, width=KEYS), ~everything(KEYS, causal=True).mask
    for wide in (scores, scores.float(), scores.bfloat16()):  # here it is far enough
        right = wide.masked_fill(hidden, -torch.inf).softmax(-1)
        assert torch.equal(wide.masked_fill(hidden, -1e9).softmax(-1), right)
    with pytest.raises(RuntimeError, match="overflow"):
        scores.half().masked_fill(hidden, -1e9)
    penalty = torch.tensor(-1e9).half()  # is minus infinity, and zero times that is not a number
    assert (scores.half() + hidden.half() * penalty).isnan().any()
    query, key, _ = (each.half() for each in projected(attention_of(), draw(KEYS)))
    found = attention_weights(query, key, everything(KEYS, causal=True))
    torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]), rtol=0, atol=1e-2)
    assert not found.masked_select(hidden[:, None]).any()
    # A query that sees nothing would look at everything alike.
    nothing = torch.zeros(ROWS, KEYS, dtype=torch.long)
    unseen = Visible.same_sentence(nothing, nothing)
    agree(scores.float().masked_fill(~unseen.mask, -1e9).softmax(-1), torch.full((ROWS, KEYS, KEYS), 1 / KEYS))
    assert not attention_weights(query, key, unseen).any()


def test_a_tiny_number_hides_nothing() -> None:
    query, key, _ = projected(attention_of(), draw(KEYS))
    causal = everything(KEYS, causal=True)
    hidden = ~causal.mask[:, None]
    misread = (query @ key.mT / sqrt(CHANNELS)).masked_fill(hidden, 1e-9).softmax(-1)
    assert (misread.masked_select(hidden) > 0).all()
    right = attention_weights(query, key, causal)
    assert not right.masked_select(hidden).any()
    agree(right.sum(-1), torch.ones_like(right[..., 0]))


# Embeddings and positions


def test_sines_and_cosines_alternate_and_do_not_stand_in_halves() -> None:
    width, length = 10, 23
    angles = [[position / 10000 ** (2 * pair / width) for pair in range(width // 2)] for position in range(length)]
    waves = torch.tensor(angles, dtype=torch.float64)
    table, halves = sinusoids(length, width).double(), torch.cat((waves.sin(), waves.cos()), dim=1)
    torch.testing.assert_close(table[:, 0::2], waves.sin(), rtol=0, atol=1e-6)
    torch.testing.assert_close(table[:, 1::2], waves.cos(), rtol=0, atol=1e-6)
    assert differ(halves, table)
    # The same columns in another order: a model that learned with one lives well, but not with the other's weights.
    order = [*range(0, width, 2), *range(1, width, 2)]
    torch.testing.assert_close(halves, table[:, order], rtol=0, atol=1e-6)
    model = small(width=width, heads=2)
    before = model.encode(Side.of([[5, 6, 7]])).states
    model.positions.table = model.positions.table[:, order]
    assert differ(model.encode(Side.of([[5, 6, 7]])).states, before)


def test_a_sine_and_its_cosine_turn_at_one_speed() -> None:
    # i counts pairs. Read as the number of a channel, with 2i in the exponent still, speeds fall twice as fast and each
    # cosine has a speed of its own.
    width, length = 10, 23
    position, channel = torch.arange(length).double()[:, None], torch.arange(width).double()
    angles = position / 10000 ** (2 * channel / width)
    misread = torch.where(channel % 2 == 0, angles.sin(), angles.cos())
    right = sinusoids(length, width).double()
    agree(misread[:, 0].float(), right[:, 0].float())  # the first column hides it
    assert differ(misread, right)
    ones = torch.ones(length, width // 2, dtype=torch.float64)
    torch.testing.assert_close(right[:, 0::2].square() + right[:, 1::2].square(), ones, rtol=0, atol=1e-6)
    # So no rotation leads from one position to the next, and none of a fixed offset either.
    assert differ(misread[:, 0::2].square() + misread[:, 1::2].square(), ones)
    assert angles[1, -2] == pytest.approx(10000 ** (-2 * (width - 2) / width))
    assert right[1, -2].asin().item() == pytest.approx(10000 ** (-(width - 2) / width), rel=1e-5)


def test_embeddings_are_scaled_before_positions_are_added() -> None:
    torch.manual_seed(0)
    width, pieces = 64, 503
    model = Transformer(TransformerConfig(layers=1, width=width, hidden=1, heads=1), pieces).eval()
    entered: list[Tensor] = []
    model.encoder[0].register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    model.encode(Side.of([list(range(pieces))]))
    words, places = model.source_embedding.weight.detach(), sinusoids(pieces, width)
    torch.testing.assert_close(entered[0][0], words * sqrt(width) + places)
    assert differ((words + places) * sqrt(width), entered[0][0])

    def loudness(word: Tensor, place: Tensor) -> float:
        return float(word.square().mean() / place.square().mean())

    # Embeddings begin with variance 1 / d_model and sin^2 + cos^2 = 1: words are twice as loud as places. Scaled
    # together, or not at all, places drown the words by d_model / 2.
    assert loudness(words * sqrt(width), places) == pytest.approx(2, rel=0.05)
    for scale in (1, sqrt(width)):
        assert loudness(words * scale, places * scale) == pytest.approx(2 / width, rel=0.05)


def test_positions_restart_with_every_sentence() -> None:
    model, first, second = small(), [5, 6, 7], [8, 9, 10, 11, 12]
    ids, segments = torch.tensor([[*first, *second]]), torch.tensor([[1] * 3 + [2] * 5])
    restarting, running = torch.tensor([[*range(3), *range(5)]]), torch.arange(8)[None]
    alone = [model.encode(Side.of([each])).states[0] for each in (first, second)]
    right, misread = (model.encode(Side(ids, segments, each)).states[0] for each in (restarting, running))
    agree(right, torch.cat(alone))
    agree(misread[:3], alone[0])  # the first sentence of a row hides it, and so does padding on the right
    assert differ(misread[3:], alone[1])
    # Padding on the left, counted, is the same mistake.
    shifted = Side(ids[:, :3], segments[:, :3], restarting[:, :3] + 2)
    assert differ(model.encode(shifted).states[0], alone[0])


def test_one_matrix_embeds_and_projects_and_not_three() -> None:
    vocabulary, width = 40_000, 512
    with torch.device("meta"):
        found = sum(p.numel() for p in Transformer(TransformerConfig(), vocabulary).parameters())
    assert found == pytest.approx(65e6, rel=0.03)  # as Table 3 counts
    assert found + 2 * vocabulary * width > 1.5 * 65e6


# Layers


def test_identical_layers_have_weights_of_their_own() -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig(), 40_000)
        one = Transformer(TransformerConfig(layers=1), 40_000)
    parameters = [parameter for layer in model.encoder for parameter in layer.parameters()]
    assert len(set(map(id, parameters))) == 6 * len(list(model.encoder[0].parameters()))
    counts = [sum(parameter.numel() for parameter in each.parameters()) for each in (model, one)]
    assert counts[0] == pytest.approx(65e6, rel=0.03)
    assert counts[1] < 30e6  # what six layers would have if they shared theirs


def test_the_norm_stands_behind_the_sum() -> None:
    torch.manual_seed(0)
    x, sublayer = draw(KEYS), nn.Linear(WIDTH, WIDTH).double()
    residual = Residual(WIDTH, 0.0, TransformerConfig().norm).double()
    right, misread = residual.norm(x + sublayer(x)), x + sublayer(residual.norm(x))
    agree(residual(x, sublayer), right)
    assert differ(misread, right)
    deviations = [each.var(-1, unbiased=False) for each in (right, misread)]
    torch.testing.assert_close(deviations[0], torch.ones(ROWS, KEYS).double(), rtol=0, atol=1e-3)
    assert differ(deviations[1], torch.ones(ROWS, KEYS).double())


def test_dropout_falls_on_the_sublayer_and_not_on_what_is_carried_past_it() -> None:
    torch.manual_seed(0)
    x, residual = draw(KEYS), Residual(WIDTH, 0.5, "post").double().train()
    right = residual.norm(x)
    agree(residual(x, torch.zeros_like), right)  # the sublayer says nothing: nothing is dropped
    assert differ(residual.norm(residual.dropout(x)), right)
    assert differ(residual.dropout(residual.norm(x)), right)
    residual.eval()  # at rest all three agree
    agree(residual.norm(residual.dropout(x)), residual(x, torch.zeros_like))


def test_a_layer_norm_divides_by_the_deviation_over_the_channels_of_one_position() -> None:
    # (1, 3) has mean 2 and variance ((-1)^2 + 1^2) / 2 = 1, (5, 9) mean 7 and variance 4: both become (-1, 1).
    norm = Residual(2, 0.0, "post").norm
    x = torch.tensor([[1.0, 3.0], [5.0, 9.0]])
    torch.testing.assert_close(norm(x), torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]), rtol=0, atol=1e-4)
    # Over n - 1 in place of n the variance of (1, 3) is 2; of d_model channels, the difference is 1 / d_model.
    misread = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
    torch.testing.assert_close(misread[0], torch.tensor([-(0.5**0.5), 0.5**0.5]))
    assert differ((x - x.mean()) / x.std(unbiased=False), norm(x))  # over positions too
    assert differ((x - x.mean(0)) / x.std(0, unbiased=False), norm(x))  # over positions alone: a batch norm


def test_every_decoder_layer_reads_the_top_of_the_encoder_and_not_the_layer_beside_it() -> None:
    def made_and_read(layers: int) -> tuple[list[Tensor], list[Tensor]]:
        model = small(layers=layers)
        made: list[Tensor] = []
        read: list[Tensor] = []
        for encoder, decoder in zip(model.encoder, model.decoder, strict=True):
            encoder.register_forward_hook(lambda _, __, output: made.append(output))
            decoder.cross_attention.key.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        model(Batch.of([[5, 6, 7]], [[8, 9]]))
        return made, read

    made, read = made_and_read(layers=3)
    for each in read:
        agree(each, made[-1])
    assert all(differ(beside, each) for beside, each in zip(made[:-1], read[:-1], strict=True))
    made, read = made_and_read(layers=1)
    agree(read[0], made[0])  # one layer hides it


# Training


def test_the_target_is_shifted_once() -> None:
    batch = Batch.of([[7]], [[11, 12, 13]])
    read, said = batch.target.ids[0].tolist(), batch.labels[0].tolist()
    assert (read, said) == ([BOS, 11, 12, 13], [11, 12, 13, EOS])
    # Twice: the first piece is never to be said, and every position has to skip one.
    assert list(zip(read[:-1], said[1:], strict=True)) == [(BOS, 12), (11, 13), (12, EOS)]
    # Not at all: each position reads what it is to say.
    model = small()
    changed = Batch.of([[7]], [[11, 12, 14]])
    moved = (model(changed) - model(batch)).abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [False, False, False, True]
    not_shifted = [Batch(each.source, Side.of([each.labels[0].tolist()]), each.labels) for each in (batch, changed)]
    moved = (model(not_shifted[1]) - model(not_shifted[0])).abs().amax(-1)[0] > 1e-9
    assert moved.tolist() == [False, False, True, True]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothing_spreads_nothing_over_padding(smoothing: float) -> None:
    model, sources, targets = small(), [[5, 6], [7, 8]], [[9, 10, 11, 12, 13], [14]]
    alone = sum(
        summed_loss(model, Batch.of([source], [target]), smoothing)
        for source, target in zip(sources, targets, strict=True)
    )
    batch = Batch.of(sources, targets)
    assert summed_loss(model, batch, smoothing).item() == pytest.approx(alone.item(), rel=1e-6)
    log_probabilities = model.project(model(batch)).log_softmax(-1)
    of_label = log_probabilities.gather(2, batch.labels[..., None])[..., 0]
    real = batch.labels != PAD
    # The label's share is left out where there is padding, the share of all others is not.
    misread = -(1 - smoothing) * of_label[real].sum() - smoothing * log_probabilities.mean(-1).sum()
    if smoothing:  # the mean of -log p is at least ln V wherever it is taken: so much for each of four empty places
        assert misread.item() - alone.item() >= 0.999 * smoothing * 4 * log(VOCABULARY)
    else:
        assert misread.item() == pytest.approx(alone.item(), rel=1e-6)  # without smoothing nothing shows


def test_the_softmax_is_taken_once() -> None:
    # Figure 1 ends in a softmax, and so does a cross entropy. Logits of somebody who is sure and right:
    model = model_that_always_says([1e-9, 1e-9, 1e-9, 1 - 6e-9, 1e-9, 1e-9, 1e-9])
    batch = Batch.of([[4]], [[]])
    assert batch.labels.tolist() == [[EOS]]
    assert summed_loss(model, batch, smoothing=0.0).item() < 1e-6
    probabilities = model.project(model(batch)).softmax(-1)
    misread = cross_entropy(probabilities[0], batch.labels[0]).item()
    # At best e / (e + V - 1): the loss never falls below ln(1 + (V - 1) / e), however long one trains.
    assert misread == pytest.approx(log(1 + (7 - 1) / exp(1)), rel=1e-5)


def test_equation_3_is_the_rate_and_not_a_factor_of_another() -> None:
    def equation_3(step: int) -> float:
        return float(512**-0.5 * min(step**-0.5, step * 4000**-1.5))

    def rates(base: dict[str, float]) -> list[float]:
        optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], **base)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: equation_3(done + 1))
        found = []
        for _ in range(3):
            found += schedule.get_last_lr()
            optimizer.step()
            schedule.step()
        return found

    right = [learning_rate(TrainingConfig(), 512, step, spent=0.0) for step in (1, 2, 3)]
    assert right == pytest.approx([equation_3(step) for step in (1, 2, 3)])
    assert rates({"lr": 1.0}) == pytest.approx(right)
    assert rates({}) == pytest.approx([rate / 1000 for rate in right])  # Adam's own rate is 0.001 unless said
    with pytest.raises(ZeroDivisionError):  # steps are counted from one
        equation_3(0)


# Decoding and scoring


def hasty_search(model: Transformer, source: list[int], beam: int) -> list[int]:
    """Beam search that takes the first hypothesis to end."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    for _ in range(len(source) + 4):
        batch = Batch.of([source] * len(live), [ids for _, ids in live])
        after = model.project(model(batch))[:, -1].log_softmax(-1).tolist()
        candidates = [
            (total + row[piece], [*ids, piece])
            for (total, ids), row in zip(live, after, strict=True)
            for piece in (EOS, *PIECES)
        ]
        live = sorted(candidates, reverse=True)[:beam]
        ended = [ids for _, ids in live if ids[-1] == EOS]
        if ended:
            return ended[0][:-1]
    return []


@torch.inference_mode()
def test_the_first_hypothesis_to_end_is_not_the_best() -> None:
    beam, alpha, worse = 3, 0.6, 0
    sources = [[4, 5], [6], [5, 5, 6]]
    for seed in range(3):
        model = oracles.peaked(seed)
        found = [best[0] for best in search([model], side(sources), beam, alpha, extra=3)]
        hasty = [hasty_search(model, source, beam) for source in sources]
        scores = [each.normalised(alpha) for each in score([model], sources, hasty)]
        for best, first in zip(found, scores, strict=True):
            assert best.score >= first - 1e-6
            worse += best.score > first + 1e-3
    assert worse > 0


def test_the_length_penalty_rewards_length() -> None:
    # log P is below zero: to divide it by more brings it closer to zero. With every output in view the best one is the
    # one with the least ln(-log P) - alpha ln(lp), so that it never gets shorter as alpha grows.
    alphas = (0.0, 0.6, 3.0)
    lengths = []
    for seed in range(5):
        model = oracles.peaked(seed)
        found = [search([model], side([[5, 5, 6]]), 81, alpha, extra=1)[0][0] for alpha in alphas]
        lengths.append([len(each.ids) for each in found])
    assert all(each == sorted(each) for each in lengths)
    assert any(each[0] < each[-1] for each in lengths)


def test_the_length_penalty_is_not_the_mean_over_the_pieces() -> None:
    # Two pieces for -2, or four for -3.5, the end token counted: the mean prefers the second (-0.875 to -1), lp the
    # first: (7 / 6)^0.6 = 1.097 and -1.823, (9 / 6)^0.6 = 1.275 and -2.744.
    short, long = Score(-2.0, 2), Score(-3.5, 4)
    assert short.log_probability / short.pieces < long.log_probability / long.pieces
    assert short.normalised(0.6) == pytest.approx(-2 / (7 / 6) ** 0.6)
    assert long.normalised(0.6) == pytest.approx(-3.5 / (9 / 6) ** 0.6)
    assert short.normalised(0.6) > long.normalised(0.6)
    # An output that says nothing but its end has |Y| = 1 and no penalty; not counted, it would be one below 1.
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(0, 0.6) < 1


@torch.inference_mode()
def test_a_translation_is_made_from_the_source_alone() -> None:
    # A parrot: its sublayers say nothing, so that the likeliest next piece is the one it has just read.
    model = small(positions="none")
    for name, parameter in model.named_parameters():
        if "output" in name or "contract" in name:
            nn.init.zeros_(parameter)
    reference = [9, 9, 9, 9]
    batch = Batch.of([[5, 6, 7]], [reference])
    misread = model.project(model(batch)).argmax(-1)  # it reads the reference while it "translates"
    assert misread.tolist() == batch.target.ids.tolist()
    assert (misread == batch.labels).sum().item() == 3  # of five, and it knows nothing
    found = search([model], batch.source, beam=1, alpha=0.6, extra=0)[0][0].ids
    assert 9 not in found


LINES = ["the committee met on monday", "a parliament is in session", "the members of the committee", "on monday"]


@cache
def words() -> Vocabulary:
    return Vocabulary(train_vocabulary(lambda: LINES * 10, 30, "bpe", byte_fallback=False))


def test_perplexity_is_measured_without_smoothing_and_told_per_piece() -> None:
    model = Transformer(TransformerConfig(layers=1, width=WIDTH, hidden=17, heads=HEADS, longest=61), len(words()))
    model.eval()
    translator = Translator([model], words(), words(), DecodingConfig())
    sources, references = LINES[:2], LINES[2:]
    targets = words().encode(references)
    batch = Batch.of(words().encode(sources), targets)
    pieces = sum(len(target) + 1 for target in targets)
    right, smoothed = (summed_loss(model, batch, smoothing).item() for smoothing in (0.0, 0.5))
    found = perplexity(translator, sources, references)
    assert found == pytest.approx(exp(right / pieces), rel=1e-5)
    assert found != pytest.approx(exp(smoothed / pieces), rel=1e-3)
    # The same model is this much worse by the word: the exponent is pieces a word.
    spoken = sum(len(line.split()) + 1 for line in references)
    assert exp(right / spoken) == pytest.approx(found ** (pieces / spoken), rel=1e-4)
    assert pieces > 2 * spoken


def test_bleu_is_of_words_and_not_of_pieces() -> None:
    references = LINES[:2]
    hypotheses = ["the committee met on sunday", "a parliament was in session"]
    spelled = [[" ".join(words().pieces(ids)) for ids in words().encode(lines)] for lines in (hypotheses, references)]
    misread = BLEU(tokenize="none").corpus_score(spelled[0], [spelled[1]]).score
    right = bleu(hypotheses, references, resamples=20)
    assert right.score == pytest.approx(BLEU(tokenize="13a").corpus_score(hypotheses, [references]).score)
    assert "tok:13a" in right.signature
    assert misread > right.score + 10
    # Nothing shows where all is right.
    assert BLEU(tokenize="none").corpus_score(spelled[1], [spelled[1]]).score == pytest.approx(100)
    assert plain_bleu(references, references) == pytest.approx(100)


def test_bleu_is_of_the_corpus_and_not_the_mean_of_its_lines() -> None:
    references = LINES[:3]
    hypotheses = ["the committee", "a parliament was in session", LINES[2]]
    one_by_one = [plain_bleu([line], [reference]) for line, reference in zip(hypotheses, references, strict=True)]
    whole = plain_bleu(hypotheses, references)
    assert whole == pytest.approx(BLEU().corpus_score(hypotheses, [references]).score)
    assert abs(sum(one_by_one) / len(one_by_one) - whole) > 5
    assert one_by_one[0] == 0  # too short for four words in a row, however right


# Numbers


def test_gpt_3_is_12_288_wide_and_not_12_888() -> None:
    model = read_recipe("sizes/gpt-3").model
    assert isinstance(model, LanguageModelConfig)
    assert model.width == 12_288 == model.heads * 128
    assert 12_888 % model.heads  # 96 heads do not share 12,888

    # Attention has 4 d^2 weights a layer and the feed-forward 8 d^2.
    counts = [12 * model.layers * width**2 for width in (12_288, 12_888)]
    assert counts[0] == pytest.approx(175e9, rel=0.01)
    assert counts[1] > 1.09 * 175e9


# The document


def sections() -> dict[str, str]:
    """What docs/misreadings.md says under each of its third headings."""
    text = (ROOT / "docs" / "misreadings.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^### (.+?)\n\n(.+?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL))


def test_every_misreading_is_told_and_every_section_names_its_test() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    tests = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    named = []
    for title, text in sections().items():
        labels = re.findall(r"^- \*\*(.+?)\*\*", text, flags=re.MULTILINE)
        assert labels == ["Often", "The paper", "Why it matters", "Test"], title
        assert re.search(r"\*\*The paper\*\*.*(sections? \d|Table \d|Brown et al)", text), title
        named += re.findall(r"`(test_\w+)`", text)
    assert len(named) == len(sections()) >= 30
    about_the_document = [name for name in tests if "misreading_is_told" in name]
    assert sorted([*named, *about_the_document]) == sorted(tests)
