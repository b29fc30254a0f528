"""The command line as a user has it: processes, pipes, terminals, files."""

import gzip
import hashlib
import json
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
import torch
from safetensors import safe_open
from typer.main import get_command

from dragoman import __version__
from dragoman.batch import EOS
from dragoman.cli import app
from dragoman.saved import CHECKPOINTS, find_model, load_model, read_card, save_model
from dragoman.streams import LINES_AT_ONCE
from tests.system.conftest import Call
from tests.training.conftest import MINUSCULE

SMALL_GPT = ["model.layers=1", "model.width=12", "model.hidden=17", "model.heads=3", "training.row_length=48"]
DRAGOMAN = [sys.executable, "-m", "dragoman.cli"]
TORCH = ("--engine", "torch")  # as it was trained, and silent
SECONDS = 120  # more than any answer needs on a busy machine
COLOUR = re.compile(rb"\x1b\[(?:\d+;)*(?:[34]\d|9[0-7]|10[0-7])(?:;\d+)*m")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tests share two cores, and Python buffers what it writes, as it does for a user."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@pytest.fixture
def ask(call: Call, tmp_path: Path) -> Callable[..., list[str]]:
    """Translates lines with some options, from file to file."""

    def ask(lines: Sequence[str], *words: str | Path) -> list[str]:
        (tmp_path / "asked").write_text("".join(f"{line}\n" for line in lines))
        ended = call("translate", *words, *TORCH, "--input", tmp_path / "asked", "--output", tmp_path / "answered")
        assert ended == (0, "", "")
        return (tmp_path / "answered").read_bytes().decode().split("\n")[:-1]

    return ask


def run(*words: str | Path, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*DRAGOMAN, *map(str, words)]
    return subprocess.run(command, input=input, capture_output=True, timeout=SECONDS, check=False)


@contextmanager
def start(*words: str | Path, stdin: int = subprocess.PIPE) -> Iterator["subprocess.Popen[bytes]"]:
    pipe = subprocess.PIPE
    command = [*DRAGOMAN, *map(str, words)]
    with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    assert select.select([stream], [], [], SECONDS)[0], "no answer"
    return stream.readline()


def some_numbers(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices("0123456789", k=draw.randint(3, 7))) for _ in range(count)]


def share_reversed(answers: Sequence[str], lines: Sequence[str]) -> float:
    return sum(answer == line[::-1] for answer, line in zip(answers, lines, strict=True)) / len(lines)


def test_each_line_has_its_line_and_an_empty_one_an_empty_one(reverser: Path) -> None:
    pipeline = f"printf 'a\\n\\nb\\n' | {shlex.join([*DRAGOMAN, 'translate', str(reverser), *TORCH])}"
    done = subprocess.run(pipeline, shell=True, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.split(b"\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == b""


def test_ten_thousand_lines_come_out_in_order(reverser: Path) -> None:
    lines = some_numbers(10_000, seed=3)
    done = run("translate", reverser, *TORCH, "--beam", "1", input="".join(f"{line}\n" for line in lines).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    answers = done.stdout.decode().split("\n")
    assert answers.pop() == ""
    assert len(answers) == 10_000
    assert share_reversed(answers, lines) >= 0.9


def test_odd_lines_are_lines_too(reverser: Path) -> None:
    blank = [b"", b"\t", b"\x0b\x0c", b"\x1c", "\u00a0\u2003".encode(), b" \r"]
    odd = [b"\x00", b"\x1b[31m5\x1b[0m", b"\x7f\x08", "a\u2028b\x85c".encode(), b"7\r8", "💥▁<s></s>".encode()]
    content = b"\n".join([b"12\r", b"12", *blank, *odd, b"345"])  # the last line does not end
    done = run("translate", reverser, *TORCH, "--beam", "1", input=content)
    assert (done.returncode, done.stderr) == (0, b"")
    answers = done.stdout.split(b"\n")
    assert answers.pop() == b""
    assert len(answers) == content.count(b"\n") + 1
    assert answers[0] == answers[1]  # a carriage return before a line feed belongs to the line's end
    assert answers[2 : 2 + len(blank)] == [b""] * len(blank)


def test_a_huge_line_is_one_line_still(reversals: Path, tmp_path: Path, call: Call) -> None:
    words = ["training.steps=1", "decoding.extra=0", "decoding.beam=1"]
    data = reversals / "data"
    assert call("train", "tiny", "--data", data, "--out", tmp_path / "run", *MINUSCULE, *words).code == 0
    done = run("translate", tmp_path / "run", *TORCH, input=b"5\n" + b"7" * 100_000 + b"\n\n")
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 3
    assert done.stdout.endswith(b"\n\n")
    first, *others = done.stderr.splitlines()
    assert first.startswith(b"warning: a text of 100,001 pieces is translated in parts")
    assert all(line.endswith(b"translated into nothing") for line in others)  # what knows nothing may say nothing


def test_a_reader_that_has_enough_ends_endless_input_quietly(
    reverser: Path, tmp_path: Path, ask: Callable[..., list[str]]
) -> None:
    translate = shlex.join([*DRAGOMAN, "translate", str(reverser), *TORCH, "--beam", "1"])
    pipeline = f"yes 31415 | {translate} 2> {shlex.quote(str(tmp_path / 'said'))} | head -1; echo ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, timeout=SECONDS, check=False)
    answer, code = done.stdout.decode().splitlines()
    assert [answer] == ask(["31415"], reverser, "--beam", "1")
    assert code == "0"
    assert (tmp_path / "said").read_bytes() == b""


def test_an_answer_that_nobody_waits_for_is_no_fault() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run([*DRAGOMAN, "--version"], stdout=theirs, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    os.close(theirs)
    assert done.stderr == b""
    assert done.returncode in (0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk to be had that is always full")
@pytest.mark.parametrize("command", ["--version", "translate"])
def test_a_full_disk_behind_stdout_is_told_once(command: str, reverser: Path) -> None:
    words = [command, str(reverser), *TORCH] if command == "translate" else [command]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*DRAGOMAN, *words], input=b"12\n", stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False
        )
    assert done.returncode == 1
    assert re.fullmatch(rb"error: [^\n]*no space left on device\n", done.stderr.lower())


def test_answers_come_while_input_goes_on_and_memory_does_not_grow(reverser: Path) -> None:
    with start("translate", reverser, *TORCH, "--beam", "1") as process:
        assert process.stdin is not None
        lines = some_numbers(LINES_AT_ONCE, seed=5)
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        answers = [read_line(process.stdout).decode().rstrip("\n") for _ in lines]
        assert share_reversed(answers, lines) >= 0.9
        status = Path(f"/proc/{process.pid}/status")
        if status.exists():
            blanks = (b" " * 2000 + b"\n") * LINES_AT_ONCE
            peaks = []
            for _ in range(20):
                process.stdin.write(blanks)
                assert {read_line(process.stdout) for _ in range(LINES_AT_ONCE)} == {b"\n"}
                peaks += [int(kilobytes) for kilobytes in re.findall(r"VmHWM:\s+(\d+)", status.read_text())]
            assert peaks[-1] - peaks[0] < 19 * len(blanks) // 1024 // 2
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_on_a_terminal_each_line_is_answered_at_once(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = ["2718", "", "16180"]
    answers = ask(lines, reverser)
    ours, theirs = pty.openpty()
    with start("translate", reverser, *TORCH, stdin=theirs) as process:
        os.close(theirs)
        for line, answer in zip(lines, answers, strict=True):
            os.write(ours, f"{line}\n".encode())
            assert read_line(process.stdout).decode() == f"{answer}\n"
        os.write(ours, b"\x04")  # Ctrl-D
        assert process.wait(SECONDS) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    os.close(ours)


def test_a_packed_file_is_translated_into_a_file(reverser: Path, tmp_path: Path, ask: Callable[..., list[str]]) -> None:
    lines = [*some_numbers(30, seed=7), "", "12"]
    (tmp_path / "in.gz").write_bytes(gzip.compress("".join(f"{line}\r\n" for line in lines).encode()))
    (tmp_path / "out").write_text("an older file\n")
    done = run("translate", reverser, *TORCH, "--input", tmp_path / "in.gz", "--output", tmp_path / "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "out").read_text().split("\n")[:-1] == ask(lines, reverser)
    assert not list(tmp_path.glob(".*"))


def test_the_n_best_come_with_line_number_and_score_best_first(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = ["271", "", "8281", "04"]
    rows = [row.split("\t") for row in ask(lines, reverser, "--n-best", "3")]
    assert [int(number) for number, _, _ in rows] == [1, 1, 1, 3, 3, 3, 4, 4, 4]
    best = ask(lines, reverser)
    for number in (1, 3, 4):
        scores, texts = zip(*[(float(row[1]), row[2]) for row in rows if row[0] == str(number)], strict=True)
        assert list(scores) == sorted(scores, reverse=True)
        assert len(texts) == 3
        assert texts[0] == best[number - 1]


def test_answers_in_json_are_an_object_a_line(reverser: Path, ask: Callable[..., list[str]]) -> None:
    plain = ask(["12345", "", "678"], reverser)
    answers = [json.loads(line) for line in ask(["12345", "", "678"], reverser, "--json", "--n-best", "3")]
    assert [answer["text"] for answer in answers] == plain
    assert [len(answer["alternatives"]) for answer in answers] == [3, 0, 3]
    assert answers[0]["alternatives"][0]["score"] == answers[0]["score"]
    assert {(answer["engine"], answer["precision"]) for answer in answers} == {("torch", "float32")}


def test_a_text_is_not_replaced_by_its_translation(reverser: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "in").write_text("123\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for name in ("in", "link"):
        ended = call("translate", reverser, *TORCH, "--input", tmp_path / "in", "--output", tmp_path / name)
        assert (ended.code, ended.err.splitlines()[0]) == (2, f"error: {tmp_path / name}: is the input too")
    assert (tmp_path / "in").read_text() == "123\n"


def test_a_seed_draws_the_same_again_and_another_seed_something_else(
    reverser: Path, ask: Callable[..., list[str]]
) -> None:
    lines = [*some_numbers(20, seed=11), ""]
    wild = ("--sample", "--temperature", "3")
    drawn = [ask(lines, reverser, *wild, "--seed", seed) for seed in ("5", "5", "6")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [len(each) for each in drawn] == [21, 21, 21]
    assert drawn[0][-1] == ""
    assert ask(lines, reverser, *wild, "--top-k", "1") == ask(lines, reverser, "--beam", "1")


def test_a_prefix_begins_every_answer(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = ["123", "", "98765", "40"]
    answers = ask(lines, reverser, "--prefix", "9")
    assert [answer[:1] for answer in answers] == ["9", "", "9", "9"]
    (free,) = ask(["1234"], reverser, "--beam", "1")
    assert ask(["1234"], reverser, "--beam", "1", "--prefix", free[:2]) == [free]


def test_a_model_together_with_itself_is_the_model(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = some_numbers(40, seed=13)
    alone = [row.split("\t") for row in ask(lines, reverser, "--n-best", "2")]
    twice = [row.split("\t") for row in ask(lines, reverser, "--n-best", "2", "--with", reverser)]
    assert [(number, text) for number, _, text in twice] == [(number, text) for number, _, text in alone]
    assert [float(row[1]) for row in twice] == pytest.approx([float(row[1]) for row in alone], abs=1e-4)


def test_the_steps_lead_to_the_end_and_write_the_translation(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = ["271", "", "8281"]
    steps = [
        re.fullmatch(r" *(\d+)  '(.*)'  ->  (\S+) \d\.\d{3}.*  \(looking at (\S+)\)", line)
        for line in ask(lines, reverser, "--steps")
    ]
    assert all(steps)
    found = [step.groups() for step in steps if step]
    ends = [number for number, step in enumerate(found) if step[2] == "</s>"]
    assert len(ends) == 2  # a blank line has no steps
    assert ends[-1] == len(found) - 1
    assert [int(step[0]) for step in found] == [*range(1, ends[0] + 2), *range(1, ends[1] - ends[0] + 1)]
    answers = ask(lines, reverser, "--beam", "1")
    assert [found[end][1] for end in ends] == [answers[0], answers[2]]


def test_the_steps_of_a_line_are_one_object_for_programs(reverser: Path, ask: Callable[..., list[str]]) -> None:
    lines = ["271", "", "8281"]
    found = [json.loads(line) for line in ask(lines, reverser, "--steps", "--json")]
    assert [each["text"] for each in found] == ask(lines, reverser, "--beam", "1")
    told = [
        f"{step['number']:>3}  {step['written']!r}  ->  "
        f"{'  '.join(f'{piece} {share:.3f}' for piece, share in step['best'])}  (looking at {step['looking_at']})"
        for each in found
        for step in each["steps"]
    ]
    assert told == ask(lines, reverser, "--steps")
    assert [{"engine", "precision", "steps", "text"} == each.keys() for each in found] == [True] * len(lines)


@pytest.fixture
def silent(reverser: Path, tmp_path: Path) -> Path:
    """A model for which every sentence is at its end before it has begun."""
    saved = load_model(find_model(reverser))
    with torch.no_grad():
        saved.model.decoder_norm.weight.zero_()  # type: ignore[union-attr, operator]
        saved.model.decoder_norm.bias.copy_(torch.eye(64)[0])  # type: ignore[union-attr, operator]
        saved.model.target_embedding.weight[:, 0] = torch.eye(len(saved.target_vocabulary))[EOS] * 50  # type: ignore[union-attr, index]
    vocabularies = (saved.source_vocabulary, saved.target_vocabulary)
    card = {name: saved.card[name] for name in ("languages", "data", "step")}
    save_model(tmp_path / "silent", saved.model, saved.recipe, vocabularies, card)
    return tmp_path / "silent"


def test_lines_that_become_nothing_are_counted_on_stderr(silent: Path) -> None:
    for text, said in (
        (b"271\n\n90\n8281\n", b"warning: 3 lines that are not blank were translated into nothing\n"),
        (b"271\n \n", b"warning: 1 line that is not blank was translated into nothing\n"),
        (b"\n \n", b""),
    ):
        done = run("translate", silent, *TORCH, input=text)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"\n" * text.count(b"\n"), said)


def test_an_evaluation_says_so_too(silent: Path, reversals: Path, call: Call, caplog: pytest.LogCaptureFixture) -> None:
    files = ("--source", reversals / "valid.fwd", "--target", reversals / "valid.rev")
    assert call("evaluate", silent, *files).code == 0
    assert caplog.messages == ["50 lines that are not blank were translated into nothing"]


def test_help_and_version_do_not_wait_for_torch() -> None:
    groups = {name: getattr(command, "commands", {}) for name, command in get_command(app).commands.items()}  # type: ignore[attr-defined]
    commands = [*([name] for name in groups), *([name, inner] for name, inside in groups.items() for inner in inside)]
    assert len(groups) == 13
    script = f"""
import sys
from dragoman.cli import main
for words in (["--version"], ["--help"], *([*names, "--help"] for names in {commands})):
    sys.argv = ["dragoman", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code
print(sorted({{"torch", "numpy", "matplotlib", "sentencepiece", "sacrebleu"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == f"dragoman {__version__}"
    assert said[-1] == "[]"
    assert done.stdout.count("Usage: ") == 1 + len(commands)


def test_a_translation_is_scored_as_it_was_when_it_was_made(reverser: Path, reversals: Path, call: Call) -> None:
    best = call("translate", reverser, *TORCH, "--n-best", "2", "--input", reversals / "test.fwd").out.splitlines()[::2]
    scored = call("score", reverser, "--source", reversals / "test.fwd", "--target", reversals / "test.rev")
    assert (scored.code, scored.err) == (0, "")
    right = (reversals / "test.rev").read_text().splitlines()
    scores = list(map(float, scored.out.splitlines()))
    assert len(scores) == len(right) == len(best)
    alike = [
        (score, float(row.split("\t")[1]))
        for score, row, text in zip(scores, best, right, strict=True)
        if row.split("\t")[2] == text
    ]
    assert len(alike) >= 90
    assert [score for score, _ in alike] == pytest.approx([reported for _, reported in alike], abs=1e-4)


def test_an_evaluation_is_json_and_stays_in_the_card(reverser: Path, reversals: Path, tmp_path: Path) -> None:
    model = shutil.copytree(find_model(reverser), tmp_path / "model")
    texts = ("--source", reversals / "test.fwd", "--target", reversals / "test.rev")
    done = run("evaluate", model, *texts, "--json", "--output", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 1
    report = json.loads(done.stdout)
    assert report.keys() >= {"bleu", "chrf", "exact_match", "perplexity"}
    for metric in ("bleu", "chrf"):
        assert report[metric].keys() == {"score", "signature", "interval"}
        low, high = report[metric]["interval"]
        assert low - 1 <= report[metric]["score"] <= high + 1  # it is drawn around the mean of its own draws
        assert "version:" in report[metric]["signature"]
    answers = (tmp_path / "out").read_text().splitlines()
    assert report["exact_match"] == share_reversed(answers, (reversals / "test.fwd").read_text().splitlines())
    assert 0.9 <= report["exact_match"] <= 1
    assert 1 <= report["perplexity"] < 2
    assert read_card(model)["scores"] == [report]


def test_a_model_that_is_nearly_always_wrong_can_be_evaluated(
    reverser: Path, reversals: Path, tmp_path: Path, call: Call, ask: Callable[..., list[str]]
) -> None:
    model = shutil.copytree(find_model(reverser), tmp_path / "model")
    lines = (reversals / "test.fwd").read_text().splitlines()
    (tmp_path / "wrong").write_text("".join(f"{line}\n" for line in [*ask(lines[:1], model), *"x" * (len(lines) - 1)]))
    ended = call("evaluate", model, "--source", reversals / "test.fwd", "--target", tmp_path / "wrong", "--json")
    assert (ended.code, ended.err) == (0, "")
    report = json.loads(ended.out)
    assert report["exact_match"] == 1 / len(lines)
    assert report["chrf"]["interval"][0] < report["chrf"]["interval"][1]


def test_a_model_is_the_same_model_wherever_it_lies(reverser: Path, tmp_path: Path, call: Call) -> None:
    folder = find_model(reverser, "last")
    copied = shutil.copytree(folder, tmp_path / "elsewhere")
    found = [json.loads(call("inspect", path, "--json").out) for path in (reverser, folder, copied)]
    digest = hashlib.sha256()
    count = 0
    with safe_open(folder / "weights.safetensors", "np") as tensors:
        for name in sorted(tensors.keys()):
            tensor = tensors.get_tensor(name)
            count += tensor.size
            digest.update(f"{name}\0{tensor.dtype}\0{','.join(map(str, tensor.shape))}\0".encode() + tensor.tobytes())
    assert {each["weights_sha256"] for each in found} == {digest.hexdigest()}
    assert {each["parameters"] for each in found} == {count}
    assert {each["step"] for each in found} == {700}
    assert found[0]["best"]["step"] in (350, 700)
    earlier = json.loads(call("inspect", reverser, "--checkpoint", "350", "--json").out)
    assert earlier["step"] == 350
    assert earlier["weights_sha256"] != digest.hexdigest()


def test_a_recipe_can_be_inspected_by_name_and_by_file(tmp_path: Path, call: Call) -> None:
    (tmp_path / "mine.toml").write_text("[model]\nlayers = 3\n[data]\nvocabulary = 101\n")
    found = [json.loads(call("inspect", what, "--json").out) for what in ("base", "recipes/base.toml")]
    assert found[0] == found[1]
    assert found[0]["parts"].keys() == {"target_embedding", "encoder", "decoder"}
    mine = json.loads(call("inspect", tmp_path / "mine.toml", "--json").out)
    assert mine["parts"]["encoder"] * 2 == found[0]["parts"]["encoder"]
    assert f"{mine['parameters']:,}" in call("inspect", tmp_path / "mine.toml").out


def test_a_run_can_be_inspected_and_used_while_it_goes_on(reversals: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "run"
    endless = ("training.steps=10000000", "training.save_every=100", "training.keep_last=1000")
    with start("train", "tiny", "--data", reversals / "data", "--out", out, *MINUSCULE, *endless) as process:
        deadline = time.monotonic() + SECONDS
        while not list((out / CHECKPOINTS).glob("step-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        ended = call("inspect", out, "--json")
        assert (ended.code, ended.err) == (0, "")
        assert json.loads(ended.out)["step"] % 100 == 0
        assert call("score", out, "--source", reversals / "test.fwd", "--target", reversals / "test.rev").code == 0
        assert process.poll() is None


def test_an_average_is_a_model_like_any_other(
    reverser: Path, tmp_path: Path, call: Call, ask: Callable[..., list[str]]
) -> None:
    ended = call("average", reverser, "--last", "2", "--out", tmp_path / "mean")
    assert (ended.code, ended.out) == (0, "")
    assert "350, 700" in ended.err
    found = json.loads(call("inspect", tmp_path / "mean", "--json").out)
    assert found["averaged"] == [350, 700]
    lines = some_numbers(50, seed=17)
    assert share_reversed(ask(lines, tmp_path / "mean"), lines) >= 0.9


def test_a_folder_may_have_any_name_and_is_called_by_it(reversals: Path, tmp_path: Path, call: Call) -> None:
    data, run_, mean = (tmp_path / f"{name} [red]é[/red] {{x}} :skull: 100" for name in ("data", "run", "mean"))
    texts = ("--source", reversals / "test.fwd", "--target", reversals / "test.rev", "--vocabulary", "11")
    for words, named in (
        (["prepare", *texts, "--out", data], data),
        (["train", "tiny", "--data", data, "--out", run_, *MINUSCULE, "training.steps=1"], run_),
        (["average", run_, "--last", "1", "--out", mean], mean),
    ):
        ended = call(*words)
        assert (ended.code, ended.out) == (0, "")
        assert str(named) in ended.err
    assert str(mean) in call("inspect", mean).out
    assert call("prepare", *texts, "--out", data).err.startswith(f"error: {data}: already exists")


def test_who_gives_no_validation_text_is_told_what_it_costs(reversals: Path, tmp_path: Path, call: Call) -> None:
    said = "validation text: none; no BLEU is seen while a model learns, and its last checkpoint is taken for its best"
    sides = {side: reversals / f"test.{suffix}" for side, suffix in (("source", "fwd"), ("target", "rev"))}
    both = [word for side, file in sides.items() for word in (f"--{side}", file)]
    valid = [word for side, file in sides.items() for word in (f"--valid-{side}", file)]
    for words, given in (
        (both, "(`dragoman prepare` takes --valid-source and --valid-target)"),
        (both[2:], "(`dragoman prepare` takes --valid-target)"),
        ([*both, *valid], None),
    ):
        data, run_ = (tmp_path / f"{name}{len(words)}" for name in ("data", "run"))
        prepared = call("prepare", *words, "--vocabulary", "11", "--out", data)
        recipe = ["tiny", *MINUSCULE] if "--source" in words else ["systems/gpt", *SMALL_GPT]
        trained = call("train", *recipe, "--data", data, "--out", run_, "training.steps=1")
        for ended in (prepared, trained):
            assert ended.code == 0, ended.err
            assert [line for line in ended.err.splitlines() if line.startswith("validation text")] == (
                [f"{said} {given}"] if given else []
            )


def prepare_on_a_terminal(words: Sequence[str], variables: dict[str, str]) -> tuple[bytes, bytes]:
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    command = [*DRAGOMAN, "prepare", *words, "--json"]
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=plain | variables) as process:
        os.close(theirs)
        assert process.stdout is not None
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # its other end was closed
                break
        said = process.stdout.read()
        assert process.wait(SECONDS) == 0
    os.close(ours)
    return said, shown


def test_colours_are_for_terminals_that_want_them_and_json_stands_alone(reversals: Path, tmp_path: Path) -> None:
    texts = ["--source", str(reversals / "test.fwd"), "--target", str(reversals / "test.rev"), "--vocabulary", "11"]
    colourful, plain = (
        prepare_on_a_terminal([*texts, "--out", str(tmp_path / name)], {"TERM": "xterm-256color"} | variables)
        for name, variables in (("colourful", {}), ("plain", {"NO_COLOR": "1"}))
    )
    assert COLOUR.search(colourful[1])
    assert not COLOUR.search(plain[1])
    assert b"vocabulary: 271 pieces" in plain[1]
    manifests = [json.loads(said) for said, _ in (colourful, plain)]
    assert manifests[0] == manifests[1]
    assert manifests[0]["splits"]["train"]["pairs"] == 100


def test_a_cpu_is_given_ctranslate2_and_that_is_said(
    reverser: Path, reversals: Path, tmp_path: Path, call: Call
) -> None:
    model = shutil.copytree(find_model(reverser), tmp_path / "model")
    words = ("translate", model, "--device", "cpu", "--input", reversals / "test.fwd")
    said = "engine: ctranslate2 in int8; --engine torch computes with the model as it was trained\n"
    chosen = call(*words, "--json")
    assert (chosen.code, chosen.err) == (0, said)
    answers = [json.loads(line) for line in chosen.out.splitlines()]
    assert {(answer["engine"], answer["precision"]) for answer in answers} == {("ctranslate2", "int8")}
    asked = call(*words, "--engine", "ctranslate2")
    assert (asked.code, asked.err) == (0, "")
    assert asked.out.splitlines() == [answer["text"] for answer in answers]
    exported = call("export", model, "--format", "ctranslate2", "--out", tmp_path / "out", "--json")
    assert json.loads(exported.out)["parity"]["same_translations"] == 8
    assert exported.err.endswith(f"wrote {tmp_path / 'out'}\n")
    texts = ("--source", reversals / "test.fwd", "--target", reversals / "test.rev")
    report = json.loads(call("evaluate", model, *texts, "--engine", "ctranslate2", "--json").out)
    assert (report["decoding"]["engine"], report["decoding"]["precision"]) == ("ctranslate2", "int8")
    assert report in read_card(model)["scores"]
