"""Table 1 of the paper (section 4), measured: how the cost of a layer grows, and how far a signal travels.

Sizes by the paper's letters: n the length, d the width, r the neighbours of restricted attention, k the kernel.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count, repeat
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dragoman.plots.charts import Line, as_svg, draw_lines, drawing
from dragoman.study.cost import Job, count_calls, count_operations, kept_bytes, measure_seconds, path_length
from dragoman.study.layer_types import (
    Convolution,
    FusedSelfAttention,
    Recurrence,
    RestrictedSelfAttention,
    SelfAttention,
)
from dragoman.study.power_law import PowerLaw, fit_power_law
from dragoman.study.report import Cell, Figure, Report, Table
from dragoman.study.setting import conditions, said

Sizes = Mapping[str, int]
Say = Callable[[str], None]


class Row(NamedTuple):
    """What the paper says of a layer, and which of its sizes cost with which exponent."""

    complexity: str
    sequential: str
    path: str
    exponents: dict[str, int]


ROWS = {
    "self-attention": Row("O(n^2 d)", "O(1)", "O(1)", {"n": 2, "d": 1}),
    "self-attention, fused": Row("O(n^2 d)", "O(1)", "O(1)", {"n": 2, "d": 1}),
    "recurrent": Row("O(n d^2)", "O(n)", "O(n)", {"n": 1, "d": 2}),
    "convolutional": Row("O(k n d^2)", "O(1)", "O(log_k n)", {"n": 1, "d": 2, "k": 1}),
    "restricted": Row("O(r n d)", "O(1)", "O(n/r)", {"n": 1, "d": 1, "r": 1}),
}

# One size grows while the others stay: where the layer's matrix products are all that counts, and a reading takes from
# a tenth of a millisecond to a tenth of a second.
LENGTHS = (256, 384, 512, 768, 1024, 1536, 2048)
WIDTHS = (128, 192, 256, 384, 512, 768, 1024)
AT: Sizes = {"n": 512, "d": 512, "r": 64, "k": 5}
RANGES: dict[tuple[str, str], tuple[tuple[int, ...], Sizes]] = {
    ("self-attention", "n"): (LENGTHS, {}),
    ("self-attention", "d"): (WIDTHS, {"n": 1024}),
    ("self-attention, fused", "n"): (LENGTHS, {}),
    ("self-attention, fused", "d"): (WIDTHS, {"n": 1024}),
    ("recurrent", "n"): (LENGTHS[:5], {}),
    ("recurrent", "d"): ((256, 384, 512, 768, 1024, 1536), {"n": 16}),
    ("convolutional", "n"): (LENGTHS, {}),
    ("convolutional", "d"): (WIDTHS, {}),
    ("convolutional", "k"): ((3, 5, 7, 9, 13, 17, 25), {"d": 256}),
    ("restricted", "n"): (LENGTHS, {}),
    ("restricted", "d"): (WIDTHS, {"n": 2048}),
    ("restricted", "r"): ((64, 96, 128, 192, 256, 384, 512), {"n": 4608, "d": 256}),
}
# A step of a recurrent layer multiplies a batch of sentences, or it would wait for its matrix to come from memory.
SENTENCES = {"recurrent": 16}

MEMORY_LENGTHS, MEMORY_AT = (512, 1024, 2048, 4096), {"d": 16, "r": 32, "k": 5}
CALL_LENGTHS = (64, 128)
PATH_LENGTHS, NEIGHBOURS, KERNEL = (17, 31, 61, 127, 257), 7, 3


@dataclass(frozen=True)
class Growth:
    """How a layer's cost grew with one of its sizes."""

    layer: str
    size: str
    values: tuple[int, ...]
    at: dict[str, int]
    paper: int
    operations: list[int]
    counted: PowerLaw | None  # None where torch has no formula
    readings: list[list[float]]  # seconds a sentence
    measured: PowerLaw

    def numbers(self) -> dict[str, Any]:
        """All of it, for programs."""
        laws = {"counted": self.counted and self.counted._asdict(), "measured": self.measured._asdict()}
        return asdict(self) | laws


def make_job(layer: str, sizes: Sizes, sentences: int = 1) -> Job:
    """A layer of these sizes with random weights, and random positions for it."""
    match layer:
        case "self-attention":
            module: torch.nn.Module = SelfAttention()
        case "self-attention, fused":
            module = FusedSelfAttention()
        case "recurrent":
            module = Recurrence(sizes["d"])
        case "convolutional":
            module = Convolution(sizes["d"], sizes["k"])
        case _:
            module = RestrictedSelfAttention(sizes["r"])
    return Job(module, torch.randn(sentences, sizes["n"], sizes["d"]))


def grow(layer: str, size: str) -> Growth:
    """Count and measure a layer while one of its sizes grows."""
    values, others = RANGES[layer, size]
    sentences = SENTENCES.get(layer, 1)
    jobs = [make_job(layer, {**AT, **others, size: value}, sentences) for value in values]
    operations = [count_operations(job) // sentences for job in jobs]
    readings = [[seconds / sentences for seconds in each] for each in measure_seconds(jobs)]
    used = {"n", "d", *ROWS[layer].exponents} - {size}
    return Growth(
        layer,
        size,
        values,
        {name: value for name, value in {**AT, **others}.items() if name in used},
        ROWS[layer].exponents[size],
        operations,
        fit_power_law(values, operations) if all(operations) else None,
        readings,
        fit_power_law(values, list(map(min, readings))),  # whatever disturbs a reading adds to it,
    )


def count_path(layer: str, length: int) -> int:
    """How many layers (of a recurrent network: steps) it takes from the first position to the last."""
    width = 3
    recurrence = Recurrence(width).double()
    hops: dict[str, Iterator[Callable[[Tensor], Tensor]]] = {
        "self-attention": repeat(SelfAttention()),
        "recurrent": repeat(recurrence.step),
        "convolutional": repeat(Convolution(width, KERNEL).double()),
        "convolutional, dilated": (Convolution(width, KERNEL, KERNEL**layer).double() for layer in count()),
        "restricted": repeat(RestrictedSelfAttention(NEIGHBOURS)),
    }
    return path_length(hops[layer], length, width)


PATHS = {
    "self-attention": "1",
    "recurrent": "n - 1",
    "convolutional": "(n - 1) / (k - 1)",
    "convolutional, dilated": "log_k n",
    "restricted": "(n - 1) / ((r - 1) / 2)",
}


def study_table1(command: str, say: Say) -> Report:
    """Measure all of Table 1 on one thread of the CPU, where a thread's time is its work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        under = conditions()
        growths = []
        for layer, size in RANGES:
            say(f"{layer}: as {size} grows")
            growths.append(grow(layer, size))
        say("memory, steps and paths")
        kept = {layer: [kept_bytes(make_job(layer, {**MEMORY_AT, "n": n})) for n in MEMORY_LENGTHS] for layer in ROWS}
        calls = {layer: [count_calls(make_job(layer, {**MEMORY_AT, "n": n})) for n in CALL_LENGTHS] for layer in ROWS}
        paths = {layer: [count_path(layer, n) for n in PATH_LENGTHS] for layer in PATHS}
    finally:
        torch.set_num_threads(threads)
    results = {
        "study": "table1",
        "conditions": under,
        "growths": [each.numbers() for each in growths],
        "kept_bytes": {"n": MEMORY_LENGTHS, **MEMORY_AT, "layers": kept},
        "calls": {"n": CALL_LENGTHS, "layers": calls},
        "paths": {"n": PATH_LENGTHS, "r": NEIGHBOURS, "k": KERNEL, "layers": paths},
    }
    parts = [said(under), INTRODUCTION, *_growth_parts(growths), *_memory_parts(kept), *_path_parts(calls, paths)]
    return Report("Table 1, measured", command, parts, results)


INTRODUCTION = (
    "Each layer bare, without projections, residuals and norms. One size grows while the others stay; the exponent is "
    "the slope of the straight line through the logarithms, with its 95 % interval. Counted: multiplications and "
    "additions of the matrix products, by torch's counter. Measured: the least of several readings of the "
    "thread's own time, for what disturbs a reading adds to it."
)


def _growth_parts(growths: Sequence[Growth]) -> Iterator[Table | Figure]:
    columns = ["layer", "cost", "grows", "while", "paper", "counted", "measured ± 95 %"]
    worst = max(growths, key=lambda each: abs(each.measured.exponent - each.paper))
    distance = abs(worst.measured.exponent - worst.paper)
    note = f"Farthest from the paper: {worst.layer} in {worst.size}, by {distance:.2f}."
    yield Table("Exponents of the cost of a layer", columns, [_growth_row(each) for each in growths], note)
    for name, sizes, title in (("n", "n", "length n"), ("d", "d", "width d"), ("span", "rk", "neighbours r, kernel k")):
        lines = [_line(each) for each in growths if each.size in sizes]
        caption = f"Time of a layer by {title}: the least reading, up to the median, and the fitted exponents."
        yield Figure(f"time-{name}", caption, _chart(lines, title, "ms a sentence"))


def _growth_row(growth: Growth) -> list[Cell]:
    counted, measured = growth.counted, growth.measured
    return [
        growth.layer,
        ROWS[growth.layer].complexity,
        f"{growth.size}: {growth.values[0]:,} to {growth.values[-1]:,}",
        ", ".join(f"{name} = {value:,}" for name, value in growth.at.items()),
        growth.paper,
        None if counted is None else round(counted.exponent, 2),
        f"{measured.exponent:.2f} ± {measured.high - measured.exponent:.2f}",
    ]


def _line(growth: Growth) -> Line:
    least, middle = ([1e3 * choose(each) for each in growth.readings] for choose in (min, median))
    name = f"{growth.layer}: {growth.size}^{growth.measured.exponent:.2f}"
    return Line(name, growth.values, least, least, middle)


def _chart(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Both axes grow by factors; the names stand beside, where no line passes."""
    with drawing(8.0, 4.0) as figure:
        axes = figure.subplots()
        draw_lines(axes, lines, x_label, y_label, log="xy")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return as_svg(figure)


def _memory_parts(kept: Mapping[str, Sequence[int]]) -> Iterator[Table | Figure]:
    rows: list[list[Cell]] = [
        [layer, *(round(each / 2**20, 2) for each in sizes), round(fit_power_law(MEMORY_LENGTHS, sizes).exponent, 2)]
        for layer, sizes in kept.items()
    ]
    columns = ["layer", *(f"n = {n:,}" for n in MEMORY_LENGTHS), "exponent of n"]
    where = ", ".join(f"{name} = {value}" for name, value in MEMORY_AT.items())
    yield Table(
        "MiB of activations kept for the backward pass of a sentence",
        columns,
        rows,
        f"{where}, float32. Counted: what autograd keeps. The fused kernel computes the weights again instead.",
    )
    lines = [Line(layer, MEMORY_LENGTHS, [each / 2**20 for each in sizes]) for layer, sizes in kept.items()]
    svg = _chart(lines, "length n", "MiB a sentence")
    yield Figure("memory-n", "Activations kept for the backward pass as the sentence grows.", svg)


def _path_parts(calls: Mapping[str, Sequence[int]], paths: Mapping[str, Sequence[int]]) -> Iterator[Table | Figure]:
    rows: list[list[Cell]] = [[layer, ROWS[layer].sequential, *found] for layer, found in calls.items()]
    columns = ["layer", "sequential, paper", *(f"calls at n = {n}" for n in CALL_LENGTHS)]
    note = "Operations of torch that a layer calls one after the other."
    yield Table("Steps that wait for one another", columns, rows, note)
    rows = [[layer, ROWS[layer.split(",")[0]].path, PATHS[layer], *found] for layer, found in paths.items()]
    rows[2][1] = "O(n/k)"  # section 4 has both: O(log_k n) is for dilated convolutions
    columns = ["layer", "path, paper", "formula, rounded up", *(f"n = {n}" for n in PATH_LENGTHS)]
    note = (
        f"r = {NEIGHBOURS}, k = {KERNEL}. How many layers (of the recurrent one: steps) it takes until the last "
        "position depends on the first, found by sending a change through them."
    )
    yield Table("Longest path between two positions", columns, rows, note)
    lines = [Line(layer, PATH_LENGTHS, found) for layer, found in paths.items()]
    svg = _chart(lines, "length n", "layers or steps")
    yield Figure("path-n", "Longest path between two positions as the sentence grows.", svg)
