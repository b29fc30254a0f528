"""What the trials of a study found: means and intervals over seeds, and the tables and curves that studies share."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.evaluation.metrics import Metric
from dragoman.plots.charts import COLOURS, Line, as_svg, draw_lines, drawing
from dragoman.study.report import Cell, Figure, Part, Report, Table
from dragoman.study.student import student
from dragoman.study.trial import Result
from dragoman.study.trials import Outcome, Plan
from dragoman.training.journal import read_journal
from dragoman.training.schedule import still_warms_up

# What a trial costs, by the number of its result and the unit it is shown in.
COSTS = {
    "parameters, M": ("parameters", 1e6),
    "updates": ("steps", 1.0),
    "tokens/s": ("tokens_per_second", 1.0),
    "tokens, M": ("tokens", 1e6),
    "training, s": ("training_seconds", 1.0),
    "scoring, s": ("translating_seconds", 1.0),
    "peak MiB": ("memory_bytes", 2.0**20),
}


@dataclass(frozen=True)
class Estimate:
    """A number and where it might as well be: its 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, metric: Metric) -> "Estimate":
        """A score with the bootstrap's interval."""
        return cls(metric.score, *metric.interval)

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Finding:
    """What the seeds of one trial found."""

    name: str
    results: Sequence[Result]
    failures: Sequence[str]

    @property
    def scores(self) -> list[float]:
        """BLEU of every seed."""
        return [each.bleu.score for each in self.results]

    @property
    def bleu(self) -> Estimate | None:
        """Its interval is that of the mean over seeds or, of a single seed, the bootstrap's."""
        if len(self.results) == 1:
            return Estimate.of(self.results[0].bleu)
        return over_seeds(self.scores) if self.results else None

    @property
    def score(self) -> str | None:
        """BLEU for a table, or why there is none."""
        return str(self.bleu) if self.bleu else f"failed: {self.failures[0]}" if self.failures else None

    def mean(self, name: str, unit: float = 1.0) -> float | None:
        """Of a number that results have."""
        found = [getattr(each, name) for each in self.results if getattr(each, name) is not None]
        return statistics.fmean(found) / unit if found else None


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean of several, and its interval by Student's t."""
    mean = statistics.fmean(values)
    reach = student(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - reach, mean + reach)


def findings(outcome: Outcome) -> dict[str, Finding]:
    """By the trials' names, in their order."""
    labels: dict[str, list[str]] = {}
    for trial in outcome.trials:
        labels.setdefault(trial.name, []).append(trial.label)
    return {
        name: Finding(
            name,
            [outcome.results[label] for label in those if label in outcome.results],
            [outcome.failures[label] for label in those if label in outcome.failures],
        )
        for name, those in labels.items()
    }


def scores(found: Mapping[str, Finding], against: str | None = None) -> Table:
    """BLEU with its intervals, and how far from one of the trials, if it is there."""
    base = found[against].bleu if against and against in found else None
    has_seeds = any(len(finding.results) > 1 for finding in found.values())
    columns = [
        "trial",
        "BLEU [95 %]",
        *(["seeds", "first seed [bootstrap]"] if has_seeds else []),
        "chrF",
        "perplexity",
    ]
    rows: list[list[Cell]] = []
    for finding in found.values():
        bleu, results = finding.bleu, finding.results
        row: list[Cell] = [finding.name, finding.score]
        if has_seeds:
            row += [len(results), str(Estimate.of(results[0].bleu)) if results else None]
        row += [statistics.fmean(each.chrf.score for each in results) if results else None, finding.mean("perplexity")]
        rows.append([*row, f"{bleu.mean - base.mean:+.2f}" if bleu and base else None] if base else row)
    signature = next((each.results[0].bleu.signature for each in found.values() if each.results), "")
    note = (
        "The interval of several seeds is that of their mean (Student's t), that of one seed the test set's "
        f"(bootstrap). Perplexity is per piece. {signature}"
    )
    return Table("Scores", [*columns, *([f"above {against}"] if base else [])], rows, note)


def cost(found: Mapping[str, Finding]) -> Table:
    """What a trial of each costs, in the mean over its seeds."""
    rows: list[list[Cell]] = [
        [finding.name, *(finding.mean(number, unit) for number, unit in COSTS.values())] for finding in found.values()
    ]
    note = (
        "Tokens are those of the target, tokens/s in the median over steps. Training counts validations, but not what "
        "a GPU prepares in the first step. Peak: the most that training held, on a GPU what torch reserved, "
        "elsewhere the whole process."
    )
    return Table("Cost of a trial", ["trial", *COSTS], rows, note)


def curves(outcome: Outcome, families: Mapping[str, Sequence[str]]) -> list[Figure]:
    """Loss and validation BLEU against minutes, a picture for each family of trials, by their first seeds."""
    labels = outcome.first_seeds()
    pictures = []
    for number, (family, names) in enumerate(families.items(), start=1):
        read = {name: read_journal(outcome.run(labels[name])) for name in names if name in labels}
        if len(read) < min(2, len(labels)):  # nothing to compare
            continue
        with drawing(9.0, 3.6) as figure:
            left, right = figure.subplots(1, 2)
            draw_lines(left, [_loss(name, each, n) for n, (name, each) in enumerate(read.items())], "minutes", "loss")
            lines = [_bleu(name, each, n) for n, (name, each) in enumerate(read.items())]
            draw_lines(right, lines, "minutes", "BLEU, validation, greedy")
            right.set_xlim(left.get_xlim())
            right.set_ylim(bottom=0)
            if right.get_legend():
                right.get_legend().remove()  # the names stand in the picture beside it
            svg = as_svg(figure)
        pictures.append(Figure(f"curves-{number}", f"{family}: learning curves of the first seed", svg))
    return pictures


def _loss(name: str, events: Sequence[Mapping[str, Any]], number: int) -> Line:
    steps = [event for event in events if event["event"] == "step"]
    every = max(1, len(steps) // 40)  # means of neighbours: what is looked at is the trend
    parts = [steps[start : start + every] for start in range(0, len(steps), every)]
    minutes = [part[-1]["seconds"] / 60 for part in parts]
    losses = [statistics.fmean(each["loss"] for each in part) for part in parts]
    return Line(name, minutes, losses, is_dashed=number >= len(COLOURS))


def _bleu(name: str, events: Sequence[Mapping[str, Any]], number: int) -> Line:
    minutes, scores, now = [], [], 0.0
    for event in events:
        now = event.get("seconds", now)
        if event["event"] == "validation":
            minutes.append(now / 60)
            scores.append(event["bleu"])
    return Line(name, minutes, scores, is_dashed=number >= len(COLOURS))


def setting(plan: Plan, outcome: Outcome) -> list[str]:
    """On what, with what, when, and for how much."""
    done = list(outcome.results.values())
    if not done:
        return ["No trial came to its end."]
    hardware = " and ".join(sorted({each.hardware for each in done}))
    versions = " and ".join(sorted({each.torch for each in done}))
    days = sorted({each.finished[:10] for each in done})
    seconds = sum(each.training_seconds for each in done)
    translating = sum(each.translating_seconds for each in done)
    counts = " or ".join(map(str, sorted({len(each.averaged) for each in done})))
    scored = "the last checkpoint" if counts == "1" else f"the mean of its last {counts} checkpoints"
    test = outcome.conditions.test
    lines = [
        f"{len(done)} of {len(outcome.trials)} trials, up to {plan.at_once} at once on {hardware}, torch {versions}, "
        f"{' to '.join(days[:1] + days[-1:] if len(days) > 1 else days)}. Training took {seconds:,.0f} device-seconds "
        f"and {sum(each.tokens for each in done):,} target tokens in all, translating {translating:,.0f} s.",
        f"Scored on {len(outcome.sources):,} sentences ({test}), each trial by {scored}; data {plan.data} "
        f"({outcome.conditions.data_sha256[:12]}).",
    ]
    if test == "validation split":
        lines.append("No test text was given: the scores are those of the data's validation split.")
    results = [(trial, outcome.results.get(trial.label)) for trial in outcome.trials]
    cold = [trial.label for trial, result in results if result and still_warms_up(trial.recipe.training, result.steps)]
    if cold:
        lines.append(
            f"Ended inside the warm-up, before the learning rate reached its peak: {', '.join(cold)}. Such a score "
            "says little; a shorter training.warmup or more training mends it."
        )
    silent = [f"{label} ({each.left_empty:,})" for label, each in outcome.results.items() if each.left_empty]
    if silent:
        lines.append(
            f"Lines translated into nothing, of {len(outcome.sources):,}: {', '.join(silent)}. A model that leaves "
            "most of them empty has not learned to write yet."
        )
    return lines


def failed(outcome: Outcome) -> list[str | Table]:
    """The trials that came to nothing, and why."""
    rows: list[list[Cell]] = [[label, reason] for label, reason in outcome.failures.items()]
    return [Table("Trials that failed", ["trial", "reason"], rows)] if rows else []


def report(
    plan: Plan, outcome: Outcome, title: str, parts: Sequence[Part], more: Mapping[str, Any] | None = None
) -> Report:
    """A study's report: the setting, what is its own, the trials that failed, and every number for programs."""
    results = {
        "study": plan.study,
        "command": plan.command,
        "conditions": asdict(outcome.conditions),
        "trials": [asdict(each) for each in outcome.results.values()],
        "failed": outcome.failures,
        **(more or {}),
    }
    return Report(title, plan.command, [*setting(plan, outcome), *parts, *failed(outcome)], results)
