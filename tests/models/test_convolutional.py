"""What makes the convolutional systems what they are, each by a law of its own."""

from math import exp, sqrt, tanh
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dragoman.batch import EOS, Batch, Side
from dragoman.models.bytenet import DILATIONS
from dragoman.models.convolution import Convolution
from dragoman.models.convs2s import GatedBlock, LookingBlock, Seen
from dragoman.models.interface import Model
from dragoman.models.neural_gpu import ConvolutionalGRU, NeuralGPU
from dragoman.recipe import Recipe

VOCABULARY = 23
SOURCE, TARGET = [5, 6, 7, 8, 9, 10, 11], [12, 13, 14]


def make(kind: str, **changes: Any) -> Model:
    torch.manual_seed(0)
    section = {"kind": kind, "width": 10, "dropout": 0.0, **changes}
    model = Recipe.model_validate({"model": section, "training": {"row_length": 97}}).model.build(VOCABULARY)
    return model.double().eval()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


@torch.no_grad()
def fill(module: nn.Module, **values: list[list[float]] | list[float]) -> None:
    for name, value in values.items():
        module.get_parameter(name.replace("__", ".")).copy_(torch.tensor(value))


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (3, 5), (5, 2)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_row_of_one_sentence_is_convolved_as_anywhere(kernel: int, dilation: int, is_causal: bool) -> None:
    convolution = Convolution(7, 11, kernel, dilation, is_causal).double()
    x, length = torch.randn(2, 13, 7, dtype=torch.double), 13
    weight = convolution.map.weight.view(11, kernel, 7).transpose(1, 2)
    reach = (kernel - 1) * dilation
    padding = reach if is_causal else reach // 2
    expected = nn.functional.conv1d(x.transpose(1, 2), weight, convolution.map.bias, padding=padding, dilation=dilation)
    close(convolution(x, torch.ones(2, length, dtype=torch.long)), expected[:, :, :length].transpose(1, 2))


def test_a_window_may_reach_farther_than_the_row() -> None:
    convolution = Convolution(2, 2, 3, dilation=16)
    x = torch.randn(1, 1, 2)
    middle = convolution.map.weight[:, 2:4]
    expected = nn.functional.linear(x, middle, convolution.map.bias)
    torch.testing.assert_close(convolution(x, torch.ones(1, 1, dtype=torch.long)), expected)


def test_a_gated_block_by_hand() -> None:
    # What the first half says passes as far as the second half lets it: a * sigmoid(b), added and halved in variance.
    block = GatedBlock(1, 3, dropout=0.0, is_causal=False)
    fill(block, convolution__map__weight=[[1.0, 2.0, 3.0], [0.5, 0.0, -0.5]], convolution__map__bias=[0.1, 0.2])
    x, alone = torch.tensor([[[4.0], [5.0], [6.0]]]), torch.ones(1, 3, dtype=torch.long)
    middle = block(x, lambda y: block.convolution(y, alone))[0, 1, 0].item()
    passed = (4 + 10 + 18 + 0.1) * sigmoid(2 - 3 + 0.2)
    assert middle == pytest.approx((5 + passed) * sqrt(0.5), rel=1e-6)


def test_a_look_at_the_source_by_hand() -> None:
    # Equation 1: the query is a map of the layer's state, plus the piece written last; keys are what the encoder made,
    # values that and the embeddings. Two are visible, so their mean is multiplied by the root of two.
    layer = LookingBlock(GatedBlock(1, 1, dropout=0.0, is_causal=True))
    fill(layer, query__weight=[[0.5]], query__bias=[0.25])
    fill(layer.block, convolution__map__weight=[[0.0], [0.0]], convolution__map__bias=[0.0, 0.0])
    keys, values = torch.tensor([[[0.1], [0.3], [9.0]]]), torch.tensor([[[2.0], [4.0], [9.0]]])
    seen = Seen(keys, values, torch.tensor([[[True, True, False]]]))
    weights: list[Tensor] = []
    x, written = torch.tensor([[[sqrt(2.0)]]]), torch.tensor([[[2.0]]])
    one_segment = torch.ones(1, 1, dtype=torch.long)
    found = layer(x, written, seen, lambda y: layer.block.convolution(y, one_segment), weights).item()
    query = 0.5 * 1 + 0.25 + 2  # the block has halved sqrt(2)
    second = sigmoid(query * (0.3 - 0.1))  # of two, the softmax is a sigmoid of the difference
    assert weights[0].flatten().tolist() == pytest.approx([1 - second, second, 0], rel=1e-6)
    assert found == pytest.approx((1 + sqrt(2) * (2 * (1 - second) + 4 * second)) * sqrt(0.5), rel=1e-6)


@pytest.mark.parametrize("layers", [1, 3, 6])
def test_a_bytenet_sees_as_far_as_its_dilations_add_up_to(layers: int) -> None:
    model, middle, length = make("bytenet", layers=layers), 40, 81
    reach = sum((DILATIONS * 2)[:layers])
    before = model.encode(Side.of([[5] * length])).states[0, middle]
    seen = []
    for place in range(length):
        changed = [5] * place + [6] + [5] * (length - place - 1)
        seen.append(not torch.equal(model.encode(Side.of([changed])).states[0, middle], before))
    assert [place - middle for place in range(length) if seen[place]] == [
        distance
        for distance in range(-middle, middle + 1)
        if abs(distance) <= reach  # every place, for each window is as wide as the steps of the next
    ]


def test_a_bytenet_reads_the_source_at_its_own_position_and_nothing_past_its_end() -> None:
    model = make("bytenet", layers=2)
    memory = model.encode(Side.of([SOURCE[:3]]))
    tokens, changed_at = torch.tensor([[12], [13], [14], [15], [16]]), 1

    def write() -> list[Tensor]:
        state, found = model.start(memory, 1), []
        for token in tokens:
            logits, state = model.step(token, state, memory)
            found.append(logits)
        return found

    before = write()
    memory.states[0, changed_at] += 1.0
    assert [torch.equal(*pair) for pair in zip(before, write(), strict=True)] == [True] + [False] * 4
    memory.states.zero_()
    empty = write()
    memory = model.encode(Side.of([SOURCE]))
    memory.states.zero_()
    for one, other in zip(write(), empty, strict=True):  # a longer source that says nothing is no source
        close(one, other)


@pytest.mark.parametrize(("kind", "spans"), [("convs2s", [4, 4, 4]), ("bytenet", [4, 8, 16])])
def test_what_a_decoder_keeps_does_not_grow(kind: str, spans: list[int]) -> None:
    # A window of k pieces needs the k - 1 before the newest, times its dilation.
    model = make(kind, layers=3, kernel=5)
    memory = model.encode(Side.of([[*SOURCE, EOS]] * 2))
    state = model.start(memory, 3)
    for _ in range(7):
        widths = {"convs2s": 10, "bytenet": 5}
        windows = {f"window.{layer}": (6, span, widths[kind]) for layer, span in enumerate(spans)}
        assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {"position": (6,), **windows}
        _, state = model.step(torch.full((6,), 7), state, memory)


def test_a_gated_cell_by_hand() -> None:
    # u * s + (1 - u) * tanh(U * (r * s) + B), with gates that see the neighbours too.
    layer = ConvolutionalGRU(1, tapes=1, kernel=3)
    fill(layer, gates__map__weight=[[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], gates__map__bias=[0.7, -0.8])
    fill(layer, candidate__map__weight=[[0.9, -1.0, 1.1]], candidate__map__bias=[-1.2])
    cells = [1.5, -0.5]
    left = layer(torch.tensor([[[cell] for cell in cells]]), torch.ones(1, 2, dtype=torch.long))[0, 0, 0].item()
    update = sigmoid(0.2 * 1.5 - 0.3 * 0.5 + 0.7)
    resets = [sigmoid(0.5 * 1.5 - 0.6 * 0.5 - 0.8), sigmoid(0.4 * 1.5 - 0.5 * 0.5 - 0.8)]
    candidate = tanh(-1.0 * resets[0] * 1.5 - 1.1 * resets[1] * 0.5 - 1.2)
    assert left == pytest.approx(update * 1.5 + (1 - update) * candidate, rel=1e-6)


def test_a_neural_gpu_reads_in_as_many_equal_steps_as_there_are_pieces() -> None:
    model = make("neural-gpu")
    assert isinstance(model, NeuralGPU)
    source = Side.of([SOURCE])
    cells = model.source_embedding(source.ids) * sqrt(10)
    for _ in SOURCE:
        for layer in model.encoder:
            cells = layer(cells, source.segments)
    close(model.encode(source).states, cells)


def test_a_neural_gpu_writes_each_piece_beside_its_cell_and_goes_on_at_the_last() -> None:
    model = make("neural-gpu")
    assert isinstance(model, NeuralGPU)
    memory = model.encode(Side.of([SOURCE[:2]]))
    state = model.start(memory, 1)
    for piece in TARGET:
        _, state = model.step(torch.tensor([piece]), state, memory)
    expected = model.target_embedding(torch.tensor([TARGET[0], TARGET[2]])) * sqrt(10)
    close(state["written"][0], expected)


@pytest.mark.parametrize("kind", ["bytenet", "neural-gpu"])
def test_what_has_no_attention_has_no_weights(kind: str) -> None:
    assert make(kind, layers=1).attention(Batch.of([SOURCE], [TARGET])) == ([], [], [])
