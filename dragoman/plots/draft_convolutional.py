"""The blueprints of convolutional networks."""

from typing import cast

from torch import nn

from dragoman.models.bytenet import DILATIONS, ByteNet, ByteNetConfig
from dragoman.models.bytenet import Block as ByteNetBlock
from dragoman.models.convolution import Convolution
from dragoman.models.convs2s import ConvS2S, ConvS2SConfig, GatedBlock, LookingBlock
from dragoman.models.neural_gpu import ConvolutionalGRU, NeuralGPU, NeuralGPUConfig
from dragoman.plots.blueprint import Block, Blueprint, Link, Stack, Sublayer
from dragoman.plots.boxes import add, count, decoder, embeddings, encoder, linear, norm, positions, titled

HALVED = ", times √0.5"


def draft_convs2s(config: ConvS2SConfig, model: ConvS2S) -> Blueprint:
    """Two stacks of gated convolutions; every layer of the second looks at the top of the first."""
    source, target = embeddings(model.source_embedding, model.target_embedding)
    below, above = cast(GatedBlock, model.encoder[0]), cast(LookingBlock, model.decoder[0])
    looking = Block("Attention, dot", "times √m, for a source of m pieces", "attention")
    asking = linear(above.query, "Query: Linear, add target embedding")
    reading = [_gated(below, config.kernel)]
    writing = [_gated(above.block, config.kernel), Sublayer([asking, looking, add(HALVED)])]
    columns = (
        encoder(source, *positions(model.source_positions), Stack(len(model.encoder), reading)),
        decoder(model, target, *positions(model.target_positions), Stack(len(model.decoder), writing)),
    )
    return titled("ConvS2S", model, columns, Link(looking, "keys; with embeddings: values"))


def _gated(block: GatedBlock, kernel: int) -> Sublayer:
    gate = Block("Gated linear unit", f"{2 * block.convolution.inputs:,} → {block.convolution.inputs:,}", "forward")
    return Sublayer([_convolution(block.convolution, kernel), gate, add(HALVED)])


def draft_bytenet(config: ByteNetConfig, model: ByteNet) -> Blueprint:
    """Two stacks of dilated convolutions, the second on top of the first."""
    source, target = embeddings(model.source_embedding, model.target_embedding)
    standing = Block("Add the source's state at this position", f"{config.width:,}", "other")
    columns = (
        encoder(source, _dilated(model.encoder, config.kernel)),
        decoder(
            model,
            target,
            standing,
            _dilated(model.decoder, config.kernel),
            linear(model.last[0]),
            *norm(model.last[1], behind=", ReLU"),
        ),
    )
    return titled("ByteNet", model, columns, Link(standing, "memory"))


def _dilated(blocks: nn.ModuleList, kernel: int) -> Stack:
    """Layers differ in their dilation alone."""
    first = cast(ByteNetBlock, blocks[0])
    dilations = ", dilated by " + ", ".join(map(str, DILATIONS[: len(blocks)]))
    boxes = [
        *norm(first.contract[0], behind=", ReLU"),
        linear(first.contract[2]),
        *norm(first.contract[3], behind=", ReLU"),
        _convolution(first.convolution, kernel, more=dilations),
        *norm(first.expand[0], behind=", ReLU"),
        linear(first.expand[2]),
        add(),
    ]
    return Stack(len(blocks), [Sublayer(boxes)])


def draft_neural_gpu(config: NeuralGPUConfig, model: NeuralGPU) -> Blueprint:
    """The same few layers for every piece, over a tape of cells."""
    source, target = embeddings(model.source_embedding, model.target_embedding)
    written = Block("Written on a tape beside the memory", f"2 · {config.width:,} a cell", "other")
    read = Block("Read the cell that was written on", f"{config.width:,}", "other")
    columns = (
        encoder(source, _advancing(model.encoder, config.kernel, "source")),
        decoder(model, target, written, _advancing(model.decoder, config.kernel, "target"), read),
    )
    return titled("Extended Neural GPU", model, columns, Link(written, "memory, to begin with"))


def _advancing(layers: nn.ModuleList, kernel: int, side: str) -> Stack:
    """Gated recurrent units, which keep or change what is carried past them."""
    first = cast(ConvolutionalGRU, layers[0])
    boxes = [
        _convolution(first.gates, kernel, "Gates: ", ", sigmoid: update, reset"),
        _convolution(first.candidate, kernel, "Candidate: ", ", of what is not reset, tanh"),
        Block("Keep or change", "update · memory + (1 - update) · candidate", "recurrent"),
    ]
    return Stack(len(layers), [Sublayer(boxes)], per=f"for each\n{side}\npiece")


def _convolution(module: Convolution, kernel: int, name: str = "", more: str = "") -> Block:
    causal = "" if module.ahead or kernel == 1 else "causal "
    text = f"{name}{causal}convolution, {kernel} wide"
    widths = f"{module.inputs:,} → {module.map.out_features:,}{more}"
    return Block(text[0].upper() + text[1:], widths, "convolution", count(module))
