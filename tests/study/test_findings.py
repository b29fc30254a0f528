"""What studies make of numbers: intervals, orderings, buckets, and reports that hold what was found."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import torch

from dragoman.errors import ConfigError
from dragoman.evaluation.metrics import Metric
from dragoman.recipe import Recipe, read_recipe
from dragoman.study import modern, norms, systems, table3
from dragoman.study.findings import over_seeds, setting
from dragoman.study.table3 import GROUPS, PAPER, Verdict, at_scale, orderings, recipes, scaled, verdict
from dragoman.study.trial import RUN, RUNS, TRANSLATIONS, Conditions, Result
from dragoman.study.trials import Outcome, Plan, Trial
from dragoman.study.variants import left_alone, read_variant
from tests.paper.test_table3 import TABLE


def around(mean: float, reach: float = 0.1) -> list[float]:
    """Three seeds."""
    return [mean - reach, mean, mean + reach]


def test_the_interval_over_seeds_is_students() -> None:
    # 1, 2, 3: mean 2, deviation 1, so 4.303 / sqrt(3) to each side; of two, 12.706 * sqrt(1/2) / sqrt(2).
    assert over_seeds([1.0, 2.0, 3.0]).high == pytest.approx(2 + 4.303 / 3**0.5)
    assert over_seeds([4.0, 5.0]).low == pytest.approx(4.5 - 12.706 / 2)


def test_verdicts_ask_whether_means_differ_beyond_chance() -> None:
    assert verdict(around(20.0), around(21.0)) == "holds"
    assert verdict(around(20.0), around(20.1)) == "leans so"
    assert verdict(around(20.1), around(20.0)) == "leans against"
    assert verdict(around(21.0), around(20.0)) == "reversed"
    # The two intervals meet, 20.0 and 20.3 with 0.25 to each side, but the difference is beyond chance.
    assert over_seeds(around(20.0)).high > over_seeds(around(20.3)).low
    assert verdict(around(20.0), around(20.3)) == "holds"


def test_one_seed_claims_no_significance_and_equal_scores_say_nothing() -> None:
    assert verdict([5.0], [25.0]) == verdict([5.0], around(25.0)) == "leans so"
    assert verdict([25.0], [5.0]) == "leans against"
    assert verdict([0.0], [0.0]) is verdict([0.0, 0.0], [0.0, 0.0]) is None
    assert verdict([0.0, 0.0], [0.1, 0.1]) == "leans so"  # nothing varies: there is nothing to compare with


def test_what_is_just_as_the_paper_has_it_holds_throughout() -> None:
    found = orderings({name: around(row.bleu, 0.01) for name, row in PAPER.items()})
    assert {each.bleu for each in found} == {"holds"}
    assert {each.group for each in found} == set(GROUPS)
    # Base and 16 heads have the same BLEU: nothing is claimed of them.
    assert len([each for each in found if each.group == "(A) heads"]) == 5 * 4 // 2 - 1
    reverse = orderings({name: around(-row.bleu, 0.01) for name, row in PAPER.items()})
    assert {each.bleu for each in reverse} == {"reversed"}


def test_perplexities_are_compared_the_other_way_round() -> None:
    ours = {"base": around(25.0), "d-smoothing-0.0": around(24.0)}
    # Smoothing hurts perplexity but improves BLEU (section 5.4): 4.67 without, 4.92 with it.
    [same] = orderings(ours, {"base": 5.0, "d-smoothing-0.0": 4.0})
    [other] = orderings(ours, {"base": 4.0, "d-smoothing-0.0": 5.0})
    assert (same.worse, same.better) == ("d-smoothing-0.0", "base")
    assert (same.bleu, same.perplexity, other.perplexity) == ("holds", True, False)
    [unknown] = orderings(ours)
    assert unknown.perplexity is None
    [equal] = orderings(ours, {"base": 4.0, "d-smoothing-0.0": 4.0})
    assert equal.perplexity is None


def test_every_row_of_the_table_is_printed_and_in_a_group() -> None:
    assert PAPER.keys() == TABLE.keys()
    assert {row for rows in GROUPS.values() for row in rows} == PAPER.keys()
    assert all(row.millions in (None, TABLE[name].millions) for name, row in PAPER.items())


def test_an_override_leaves_alone_what_a_row_is_about() -> None:
    words = ["model.layers=3", "model.dropout=0.3", "training.smoothing=0.05", "training.minutes=0.5"]
    rows = recipes(["base", "c-2-layers", "d-*"], words)
    assert {name: row.model.layers for name, row in rows.items()} == {
        **dict.fromkeys(("base", "d-dropout-0.0", "d-dropout-0.2", "d-smoothing-0.0", "d-smoothing-0.2"), 3),
        "c-2-layers": 2,
    }
    assert rows["base"].model.dropout == rows["c-2-layers"].model.dropout == 0.3
    assert rows["d-dropout-0.2"].model.dropout == 0.2
    assert rows["d-smoothing-0.0"].training.smoothing == 0.0
    assert all(row.training.minutes == 0.5 and row.training.steps is None for row in rows.values())
    assert read_variant("modern/swiglu", "systems/transformer", ["model.hidden=64"]).model.hidden == 680


def test_what_was_left_alone_is_said_with_its_trials() -> None:
    words = ["model.dropout=0.3", "model.layers=3", "training.minutes=0.5"]
    rows = ["base", "c-2-layers", "c-4-layers", "d-dropout-0.2"]
    said = "left as it is, for that is what is studied: "
    assert left_alone(recipes(rows, words), words) == (
        f"{said}model.dropout of d-dropout-0.2; model.layers of c-2-layers, c-4-layers"
    )
    words = ["model.norm=pre", "model.width=64"]
    assert left_alone(norms.recipes(["none", "layer-*"], words), words) == (
        f"{said}model.norm of layer-after, none, layer-after-no-residual"
    )
    assert left_alone(modern.recipes(["rotary"], ["model.heads=8"]), ["model.heads=8"]) is None


def test_rows_keep_their_proportions_at_any_scale() -> None:
    rows = at_scale(recipes([], []), 0.5)
    assert len(rows) == len(PAPER)
    shape = rows["c-width-256"].model
    assert (shape.width, shape.hidden, shape.layers, shape.channels) == (128, 1024, 3, (16, 16))
    assert rows["b-key-width-16"].model.channels == (8, 32)
    assert scaled(read_recipe("table3/base"), 1.0) == read_recipe("table3/base")
    with pytest.raises(ConfigError, match="c-4-layers is the same as c-2-layers at this scale"):
        at_scale(recipes(["c-*"], []), 0.25)


def test_sentences_of_one_length_share_a_bucket() -> None:
    sources = ["a " * length for length in (1, 1, 1, 2, 3, 5, 7, 7, 11, 13)]
    buckets = systems.by_length(sources, 4)
    # The quarters begin at lengths 1, 5 and 7; nothing is shorter than 1.
    assert [str(bucket) for bucket in buckets] == ["1 to 3", "5", "7 to 13"]
    assert sorted(number for bucket in buckets for number in bucket.numbers) == list(range(10))
    for one, other in pairwise(buckets):
        assert one.longest < other.shortest
    assert [str(bucket) for bucket in systems.by_length(["one two"] * 3)] == ["2"]


def test_systems_are_told_apart_by_how_the_source_comes_to_the_target() -> None:
    kinds = systems.families(systems.recipes([], []))
    assert kinds[systems.VECTOR] == ["cho", "rnn", "sutskever"]
    assert {"bahdanau", "lstmn", "wu"} < set(kinds[systems.RECURRENT])
    assert {"gpt", "restricted", "transformer"} <= set(kinds[systems.PARALLEL])


def test_norms_and_residuals_are_all_the_norms_study_varies() -> None:
    found = norms.recipes([], ["model.width=64"])
    assert len(found) == 10
    assert found["layer-after"] == read_recipe("systems/transformer", ["model.width=64"])
    shapes = [recipe.model.model_dump() for recipe in found.values()]
    assert {key for key in shapes[0] if len({shape[key] for shape in shapes}) > 1} == {"norm", "norm_kind", "residual"}
    assert len({json.dumps(shape) for shape in shapes}) == 10


def result(name: str, seed: int, score: float) -> Result:
    metric = Metric(score, "signature", (score - 1, score + 1))
    return Result(
        *(name, seed, "recipe", metric, metric, 100 / score, 7_000_000, 11, [11], 13_000, 1700.0, 19.0, 23.0, 29 << 20),
        *("hash", "a machine", "2.13", "2026-11-19T12:00:00+00:00"),
    )


def outcome(folder: Path, recipes: dict[str, Recipe], scores: dict[str, list[float]]) -> Outcome:
    """As if trials had been run: their journals and translations, and results of such scores."""
    trials, results = [], {}
    for name, values in scores.items():
        for seed, score in enumerate(values):
            trial = Trial(name, recipes[name].with_values({"training": {"seed": seed}}, name))
            trials.append(trial)
            results[trial.label] = result(name, seed, score)
            (folder / RUNS / trial.label / RUN).mkdir(parents=True)
            events = [{"event": "step", "step": n, "loss": 7 - n, "seconds": 30 * n} for n in (1, 2, 3)]
            events.append({"event": "validation", "step": 3, "bleu": score})
            journal = "".join(json.dumps(event) + "\n" for event in events)
            (folder / RUNS / trial.label / RUN / "journal.jsonl").write_text(journal)
            (folder / RUNS / trial.label / TRANSLATIONS).write_text("a b c d e\nf g h i j k\n")
    conditions = Conditions("study", "data", "hash", "text", "hash", 1)
    sources, references = ["one two three", "four five"], ["a b c d e", "f g h i j l"]
    return Outcome(
        folder, trials, results, {"late-seed0": "the loss is not finite"}, sources, references, conditions, None
    )


def plan(folder: Path) -> Plan:
    return Plan(
        study="study",
        command="dragoman study",
        data=Path("data"),
        source=None,
        target=None,
        out=folder,
        only=[],
        seeds=2,
        at_once=3,
        average=5,
        device=torch.device("cpu"),
        threads=1,
        overrides=[],
    )


def test_the_report_of_table3_puts_the_papers_numbers_beside_ours(tmp_path: Path) -> None:
    chosen = recipes(["base", "c-2-layers"], [])
    found = outcome(tmp_path, chosen, {"base": [20.0, 22.0], "c-2-layers": [30.0]})
    report = table3.make_report(plan(tmp_path), found)
    text = report.markdown()
    assert "| base | 4.773 | 4.92 | 21.00 [8.29, 33.71] | 25.8 | 7 | 65 |" in text
    assert "| (C) layers | c-2-layers < base | 23.7 < 25.8 | 30.00, 21.00 | leans against | no |" in text
    assert "| late-seed0 | the loss is not finite |" in text
    assert (
        "3 of 3 trials, up to 3 at once on a machine, torch 2.13, 2026-11-19. Training took 57 device-seconds" in text
    )
    assert report.results["orderings"][0]["bleu"] in get_args(Verdict)
    assert len(report.results["trials"]) == 3


def test_what_was_averaged_is_said_from_the_results(tmp_path: Path) -> None:
    found = outcome(tmp_path, {"one": read_recipe("tiny")}, {"one": [20.0, 21.0]})  # of five wanted there was one
    assert [line for line in setting(plan(tmp_path), found) if "each trial by the last checkpoint;" in line]
    found.results["one-seed1"] = replace(found.results["one-seed1"], averaged=[7, 11])
    assert [line for line in setting(plan(tmp_path), found) if "by the mean of its last 1 or 2 checkpoints;" in line]


def test_a_trial_that_ended_inside_its_warm_up_is_named(tmp_path: Path) -> None:
    chosen = {"cold": read_recipe("tiny", ["training.warmup=12"]), "warm": read_recipe("tiny", ["training.warmup=11"])}
    lines = setting(plan(tmp_path), outcome(tmp_path, chosen, {name: [20.0] for name in chosen}))
    assert [line for line in lines if "its peak: cold-seed0. Such a score says little" in line]


def test_a_trial_that_left_lines_empty_is_named(tmp_path: Path) -> None:
    found = outcome(tmp_path, {"one": read_recipe("tiny")}, {"one": [20.0, 21.0, 22.0]})
    assert not [line for line in setting(plan(tmp_path), found) if "into nothing" in line]
    found.results["one-seed0"] = replace(found.results["one-seed0"], left_empty=len(found.sources))
    said = f"Lines translated into nothing, of {len(found.sources)}: one-seed0 ({len(found.sources)}). "
    assert [line for line in setting(plan(tmp_path), found) if line.startswith(said)]


def test_the_report_of_systems_tells_scores_by_length(tmp_path: Path) -> None:
    chosen = systems.recipes(["rnn", "transformer"], [])
    report = systems.make_report(plan(tmp_path), outcome(tmp_path, chosen, {"rnn": [5.0], "transformer": [25.0]}))
    text = report.markdown()
    assert "| words of the source | 2 (1 sentences) | 3 (1 sentences) |" in text
    assert "| rnn | 5.00 [4.00, 6.00] | 5 | 20 | -20.00 |" in text
    assert "a fixed vector: BLEU" in text
    assert "![BLEU by source length" in text


def test_the_report_of_modern_parts_has_a_picture_of_each_family(tmp_path: Path) -> None:
    chosen = modern.recipes(["paper", "rms", "all"], [])
    scores = {name: [20.0] for name in chosen}
    report = modern.make_report(plan(tmp_path), outcome(tmp_path, chosen, scores))
    report.write(tmp_path)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"curves-1.svg", "curves-2.svg"}
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_averaged_statistics_of_a_batch_norm_are_told(tmp_path: Path) -> None:
    chosen = norms.recipes(["layer-after", "batch-after"], [])
    found = outcome(tmp_path, chosen, {name: [20.0] for name in chosen})
    warning = "not the statistics of the averaged model"
    for averaged, name, is_told in (([11], "batch", False), ([7, 11], "layer", False), ([7, 11], "batch", True)):
        one = replace(found.results[f"{name}-after-seed0"], averaged=averaged)
        text = norms.make_report(plan(tmp_path), replace(found, results={f"{name}-after-seed0": one})).markdown()
        assert (warning in text) == is_told
        assert "a position is influenced by later ones" in text


def test_batch_and_layer_norm_stand_side_by_side() -> None:
    # A channel's mean is 3 or 4, its variance 8/3, and 2 / sqrt(8/3) = 1.2247; a position is 1/2 off its mean.
    assert norms.side_by_side().rows == [
        ["[1, 2]", "[-1, 1]", "[-1.225, -1.225]"],
        ["[3, 4]", "[-1, 1]", "[0, 0]"],
        ["[5, 6]", "[-1, 1]", "[1.225, 1.225]"],
    ]
