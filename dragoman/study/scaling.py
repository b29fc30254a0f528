"""Why the scores are divided by sqrt(d_k) (section 3.2.1): with random vectors, and in a trained model."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from dragoman.decoding.translator import Translator
from dragoman.errors import ModelError
from dragoman.plots.charts import COLOURS, Line, as_svg, drawing, line_chart
from dragoman.study.looking import fitting_pairs
from dragoman.study.report import Figure, Report, Table
from dragoman.study.scores import KEYS, QUERIES, ROUNDS, Drawn, Sharpness, attentions, draw, look_into
from dragoman.study.setting import conditions, said

WIDTHS = tuple(2**power for power in range(13))
MEASURES = {
    "variance": "variance of q k",
    "entropy": "entropy of the weights, share of the largest",
    "gradient": "size of the softmax's gradient",
}
INTRODUCTION = (
    "Channels of a query and a key that are independent, with mean 0 and variance 1, make a product q k of variance "
    "d_k. The softmax of such scores comes ever closer to choosing a single key, and its gradient vanishes. Divided by "
    "sqrt(d_k), the variance is 1 at every width. Entropy: of the weights, as a share of that of even ones. Gradient: "
    "the Frobenius norm of the softmax's Jacobian, diag(w) - w w^T."
)


def study_scaling(
    text: tuple[Translator, Sequence[str], Sequence[str]] | None, command: str, say: Callable[[str], None]
) -> Report:
    """Random vectors of many widths, then the queries and keys of a trained model on a text, where one is given."""
    if text and not attentions(text[0].models[0]):
        raise ModelError("study scaling", "needs a model whose attention has heads, and this one has none")
    under = conditions(text[0].models[0].device if text else torch.device("cpu"))
    say("random vectors")
    generator = torch.Generator().manual_seed(0)
    drawn = [draw(width, generator) for width in WIDTHS]
    random = [{"key_width": at.key_width, **at.mean._asdict(), "error": at.error._asdict()} for at in drawn]
    results: dict[str, Any] = {"study": "scaling", "conditions": under, "random": random}
    parts: list[str | Table | Figure] = [said(under), INTRODUCTION, *_random_parts(drawn)]
    if text:
        say("queries and keys of the model")
        found = look_into(text[0].models[0], fitting_pairs(*text))
        widths = {name: each.query.out_features // each.heads for name, each in attentions(text[0].models[0]).items()}
        results["model"] = {
            name: {"key_width": widths[name], "heads": [head._asdict() for head in heads]}
            for name, heads in found.items()
        }
        parts += [_model_table(found, widths), _model_figure(found)]
    return Report("Why the scores are divided by the root of d_k", command, parts, results)


def _random_parts(drawn: Sequence[Drawn]) -> Iterator[Table | Figure]:
    columns = [
        "d_k",
        "variance of q k",
        "95 % ±",
        "theory",
        "entropy",
        "entropy, divided",
        "gradient",
        "gradient, divided",
    ]
    rows = [[at.key_width, at.mean.variance, at.error.variance, at.key_width, *at.mean[1:]] for at in drawn]
    note = f"{ROUNDS} rounds of {QUERIES} queries and {KEYS} keys each. Divided: the scores by sqrt(d_k)."
    yield Table("Random queries and keys", columns, rows, note)
    for name, title in MEASURES.items():
        if name == "variance":
            lines = [_line("measured", drawn, name), Line("theory: d_k", WIDTHS, WIDTHS, is_dashed=True)]
        else:
            lines = [_line("scores as they are", drawn, name), _line("divided by √d_k", drawn, f"divided_{name}")]
        svg = as_svg(line_chart(lines, "key width d_k", title, log="xy" if name == "variance" else "x"))
        yield Figure(name, f"Random vectors: {title}, with the 95 % interval.", svg)


def _line(name: str, drawn: Sequence[Drawn], field: str) -> Line:
    means, errors = (
        [getattr(each, field) for each in every] for every in ([at.mean for at in drawn], [at.error for at in drawn])
    )
    low, high = ([mean + sign * error for mean, error in zip(means, errors, strict=True)] for sign in (-1, 1))
    return Line(name, [at.key_width for at in drawn], means, low, high)


def _model_table(found: Mapping[str, Sequence[Sharpness]], widths: Mapping[str, int]) -> Table:
    columns = [
        "attention",
        "d_k",
        "variance",
        "by head",
        "entropy",
        "entropy, divided",
        "gradient",
        "gradient, divided",
    ]
    rows: list[list[str | int | float | None]] = []
    for name, heads in found.items():
        variances = [head.variance for head in heads]
        means = [sum(each) / len(heads) for each in zip(*heads, strict=True)]
        spread = f"{min(variances):.1f} to {max(variances):.1f}"
        rows.append([name.removesuffix("_attention"), widths[name], means[0], spread, *means[1:]])
    note = (
        "Means over the heads; of the variance of q k also the least and the most of a head. Divided: as the model "
        "was trained and computes; else its own products without the division."
    )
    return Table("Queries and keys of the model", columns, rows, note)


def _model_figure(found: Mapping[str, Sequence[Sharpness]]) -> Figure:
    kinds: dict[str, list[Sharpness]] = {}
    for name, heads in found.items():
        kinds.setdefault(re.sub(r"\.\d+\.", " ", name).replace("_", "-"), []).extend(heads)
    with drawing(5.5, 5.0) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="#999999", linestyle="--", label="no difference")
        for colour, (kind, heads) in zip(COLOURS, kinds.items(), strict=False):
            divided, plain = [head.divided_entropy for head in heads], [head.entropy for head in heads]
            axes.plot(divided, plain, "o", color=colour, label=kind)
        axes.set_xlabel("entropy with the division, share of the largest")
        axes.set_ylabel("entropy without it, share of the largest")
        axes.legend()
        svg = as_svg(figure)
    return Figure(
        "model-entropy", "Every head of the model: the entropy of its weights with and without the division.", svg
    )
