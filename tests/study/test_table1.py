"""Table 1: exact counts have the paper's exponents, paths the paper's lengths, and measured time comes close."""

import json
from math import ceil, log

import pytest
import torch

from dragoman.study import table1
from dragoman.study.cost import count_calls, count_operations, kept_bytes
from dragoman.study.power_law import fit_power_law
from dragoman.study.report import Figure, Table
from dragoman.study.table1 import PATHS, RANGES, ROWS, count_path, grow, make_job

SIZES = {"n": 210, "d": 11, "r": 5, "k": 3}
# Whole multiples keep the blocks of restricted attention full.
GROWING = {"n": (210, 420, 630, 1050), "d": (11, 13, 17, 23), "r": (5, 7, 15, 21), "k": (3, 5, 7, 11)}
OPERATIONS = {
    "self-attention": lambda n, d, r, k: 4 * n**2 * d,
    "recurrent": lambda n, d, r, k: 4 * n * d**2,
    "convolutional": lambda n, d, r, k: 2 * k * n * d**2,
    "restricted": lambda n, d, r, k: 8 * r * n * d,  # every query beside 2 r keys
}


@pytest.mark.parametrize("layer", OPERATIONS)
def test_operations_are_those_of_the_formula(layer: str) -> None:
    assert count_operations(make_job(layer, SIZES)) == OPERATIONS[layer](**SIZES)
    assert count_operations(make_job(layer, SIZES, sentences=3)) == 3 * OPERATIONS[layer](**SIZES)


@pytest.mark.parametrize(("layer", "size"), [each for each in RANGES if each[0] in OPERATIONS])
def test_counted_operations_grow_with_the_exponents_of_the_paper(layer: str, size: str) -> None:
    counts = [count_operations(make_job(layer, {**SIZES, size: value})) for value in GROWING[size]]
    assert fit_power_law(GROWING[size], counts).exponent == pytest.approx(ROWS[layer].exponents[size], abs=1e-9)


def test_every_exponent_of_the_paper_is_measured() -> None:
    assert set(RANGES) == {(layer, size) for layer, row in ROWS.items() for size in row.exponents}


@pytest.mark.parametrize("layer", ROWS)
def test_only_recurrence_has_steps_that_wait_for_one_another(layer: str) -> None:
    calls = [count_calls(make_job(layer, {**SIZES, "n": n})) for n in (35, 70, 105)]
    growth = {calls[1] - calls[0], calls[2] - calls[1]}
    assert (growth == {0}) == (layer != "recurrent")
    assert len(growth) == 1


def test_what_is_kept_for_the_backward_pass() -> None:
    n, d, k, float32 = 37, 5, 3, 4
    sizes = {"n": n, "d": d, "k": k, "r": 7}
    assert kept_bytes(make_job("self-attention", sizes)) == float32 * (n * n + n * d)  # the weights and the positions
    assert kept_bytes(make_job("convolutional", sizes)) == float32 * (n + k - 1) * d  # its padded input
    doubled = [kept_bytes(make_job("self-attention, fused", {**sizes, "n": each})) for each in (n, 2 * n)]
    assert doubled[1] == 2 * doubled[0]


@pytest.mark.parametrize("n", [2, 7, 13, 31, 61])
def test_paths_are_as_long_as_their_formulas_say(n: int) -> None:
    torch.manual_seed(0)
    r, k = table1.NEIGHBOURS, table1.KERNEL
    expected = {
        "self-attention": 1,
        "recurrent": n - 1,
        "convolutional": ceil((n - 1) / (k - 1)),
        "convolutional, dilated": ceil(log(n, k)),
        "restricted": ceil((n - 1) / ((r - 1) / 2)),
    }
    assert {layer: count_path(layer, n) for layer in PATHS} == expected


def test_the_report_tells_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # So small that time says nothing; the slow test below measures.
    small = {key: (GROWING[key[1]][:3], {"n": 35, "d": 11, "r": 5, "k": 3}) for key in RANGES}
    for name, value in (("RANGES", small), ("MEMORY_LENGTHS", (64, 128, 256)), ("PATH_LENGTHS", (5, 7))):
        monkeypatch.setattr(table1, name, value)
    said: list[str] = []
    threads = torch.get_num_threads()
    report = table1.study_table1("dragoman study table1", said.append)
    assert torch.get_num_threads() == threads
    assert said[0] == "self-attention: as n grows"
    tables = {part.title.split()[0]: part for part in report.parts if isinstance(part, Table)}
    assert [len(table.rows) for table in tables.values()] == [len(RANGES), 5, 5, 5]
    pictures = [part.name for part in report.parts if isinstance(part, Figure)]
    assert pictures == ["time-n", "time-d", "time-span", "memory-n", "path-n"]
    json.dumps(report.results)
    assert report.results["paths"]["layers"]["restricted"] == [2, 2]
    assert report.results["growths"][0]["counted"]["exponent"] == pytest.approx(2)


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "size"), RANGES)
def test_measured_time_grows_as_the_paper_says(layer: str, size: str) -> None:
    assert grow(layer, size).measured.exponent == pytest.approx(ROWS[layer].exponents[size], abs=0.25)
