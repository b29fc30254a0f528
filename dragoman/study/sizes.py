"""How large Transformers became: shapes, data and training of five of them, and what their training must cost.

What their authors published stands here, None where they did not; parameters are counted from the recipes, without
allocating them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from dragoman.models.language_model import LanguageModelConfig
from dragoman.models.transformer import TransformerConfig
from dragoman.plots.charts import COLOURS, as_svg, drawing
from dragoman.recipe import read_recipe
from dragoman.study.report import Cell, Figure, Report, Table
from dragoman.study.setting import conditions, said

DAY = 86_400.0  # seconds
PETAFLOP_DAY = 1e15 * DAY
FLOP_A_TOKEN = 6  # for each parameter, of training: two on the way forward, four on the way back


@dataclass(frozen=True)
class Published:
    """What its authors say of a model."""

    name: str
    recipe: str
    source: str
    pieces: int
    parameters: float
    text: str
    tokens: float | None = None  # that each parameter meets in all of training
    operations: float | None = None
    hardware: str | None = None
    rate: float | None = None  # operations a second, sustained by all of it
    days: float | None = None


# Of 25,000 source and 25,000 target tokens a step, an encoder's and a decoder's parameters meet one side each. The
# paper's operations are time x rate of its 8 P100.
WMT14, P100 = "WMT14 en-de, 4.5 M pairs", 9.5e12
MODELS = (
    Published(
        name="base",
        recipe="base",
        source="Vaswani et al. 2017",
        pieces=40_000,
        parameters=65e6,
        text=WMT14,
        tokens=100_000 * 25_000.0,
        operations=3.3e18,
        hardware="8 P100",
        rate=8 * P100,
        days=0.5,
    ),
    Published(
        name="big",
        recipe="big",
        source="Vaswani et al. 2017",
        pieces=40_000,
        parameters=213e6,
        text=WMT14,
        tokens=300_000 * 25_000.0,
        operations=2.3e19,
        hardware="8 P100",
        rate=8 * P100,
        days=3.5,
    ),
    Published(
        name="GPT-2 XL",
        recipe="sizes/gpt-2-xl",
        source="Radford et al. 2019",
        pieces=50_257,
        parameters=1_558e6,
        text="WebText, 40 GB",
    ),
    Published(
        name="Megatron-LM",
        recipe="sizes/megatron-lm",
        source="Shoeybi et al. 2019",
        pieces=51_200,
        parameters=8_300e6,
        text="174 GB",
        tokens=300_000 * 512 * 1_024.0,
        hardware="512 V100",
        rate=15.1e15,
        days=300_000 / 68_507 * 2.10,  # as so many steps took
    ),
    Published(
        name="GPT-3",
        recipe="sizes/gpt-3",
        source="Brown et al. 2020",
        pieces=50_257,
        parameters=175_000e6,
        text="five corpora",
        tokens=300e9,
        operations=3.14e23,
        hardware="V100",
    ),
)
SHAPES = (
    "Parameters in millions, counted from the recipes. Of base and big, layers are those of each stack, and the pieces "
    "are a number with which the counts of the paper's Table 3 come out within 1.2 million for all rows but big, which "
    "counts 217 million where the paper prints 213 (+2 %). GPT-3's width is 12,288, which write-ups have "
    "misprinted as 12,888 (which 96 heads do not divide). Megatron-LM's shape is that of its scaling study; its 8,300 "
    "million were then trained with 24 heads, which changes no parameter."
)
WORK = (
    "Operations: 6 x parameters x tokens. A token counts for the parameters it meets, so of base and big on one side "
    "of a pair. Those published of base and big are days x sustained rate: what the hardware could have done. A "
    "petaflop/s-day is 8.64e19 operations. A dash: not published."
)
TIME = "Computed: operations over the sustained rate of all the hardware. Used: computed over published days."


@dataclass(frozen=True)
class Size:
    """A model with what is counted and computed of it here."""

    published: Published
    layers: int
    width: int
    heads: int
    parameters: int
    operations: float | None  # of training
    days: float | None  # that takes at the published rate

    @classmethod
    def of(cls, published: Published) -> "Size":
        """Count the parameters of its recipe."""
        config = read_recipe(published.recipe).model
        assert isinstance(config, TransformerConfig | LanguageModelConfig)
        with torch.device("meta"):
            model = config.build(published.pieces)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        operations = FLOP_A_TOKEN * parameters * published.tokens if published.tokens else None
        days = operations / published.rate / DAY if operations and published.rate else None
        return cls(published, config.layers, config.width, config.heads, parameters, operations, days)


def study_sizes(command: str, say: Callable[[str], None]) -> Report:
    """Count and compute all of them."""
    say("counting")
    sizes = [Size.of(each) for each in MODELS]
    under = conditions(torch.device("cpu"))
    results = {"study": "sizes", "conditions": under, "models": [asdict(each) for each in sizes]}
    return Report("From the base model to GPT-3", command, [said(under), *_parts(sizes)], results)


def _parts(sizes: Sequence[Size]) -> Iterator[str | Table | Figure]:
    columns = ["model", "layers", "width", "heads", "pieces", "parameters, M", "published, M", "apart"]
    yield Table("Shapes", columns, [_shape(each) for each in sizes], SHAPES)
    columns = ["model", "source", "text", "tokens, G", "operations", "published", "petaflop/s-days"]
    yield Table("Text and operations of training", columns, [_work(each) for each in sizes], WORK)
    columns = ["model", "hardware", "petaflop/s, sustained", "days, computed", "days, published", "used"]
    yield Table("Time of training", columns, [_time(each) for each in sizes], TIME)
    with drawing(6.0, 4.0) as figure:
        axes = figure.subplots()
        for colour, each in zip(COLOURS, sizes, strict=False):
            if each.operations:
                axes.plot([each.parameters], [each.operations], "o", color=colour, label=each.published.name)
        axes.set(xscale="log", yscale="log", xlabel="parameters", ylabel="operations of training, computed")
        axes.legend()
        svg = as_svg(figure)
    yield Figure("operations", "What training costs by the number of parameters.", svg)


def _shape(size: Size) -> list[Cell]:
    apart = f"{size.parameters / size.published.parameters - 1:+.1%}"
    millions = [round(count / 1e6) for count in (size.parameters, size.published.parameters)]
    return [size.published.name, size.layers, size.width, size.heads, size.published.pieces, *millions, apart]


def _work(size: Size) -> list[Cell]:
    told = size.published
    operations = [None if count is None else f"{count:.2e}" for count in (size.operations, told.operations)]
    return [told.name, told.source, told.text, _in(told.tokens, 1e9), *operations, _in(size.operations, PETAFLOP_DAY)]


def _time(size: Size) -> list[Cell]:
    told = size.published
    used = f"{size.days / told.days:.0%}" if size.days and told.days else None
    return [told.name, told.hardware, _in(told.rate, 1e15), size.days, told.days, used]


def _in(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
