"""The laws that a GPU's own kernels could break; run with `pytest -m gpu` on a machine that has one."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dragoman.batch import EOS, Batch, Side
from dragoman.data.batches import Update
from dragoman.decoding.scoring import score
from dragoman.decoding.search import STEPS_BETWEEN_QUESTIONS, search
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import TrainingConfig, read_recipe
from dragoman.saved import WEIGHTS, newest_good, read_tensors
from dragoman.training.checkpoints import STATE
from dragoman.training.gradients import Gradients, summed_loss
from dragoman.training.journal import read_journal
from dragoman.training.run import run_training
from dragoman.training.schedule import Progress
from tests.training.conftest import MINUSCULE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]

SOURCES = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16]]
TARGETS = [[17, 18], [19, 20, 21, 22, 23], [24, 25, 26]]


def small_model(norm: str = "post", kind: str = "layer") -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(layers=2, width=64, hidden=128, heads=4, norm=norm, norm_kind=kind)  # type: ignore[arg-type]
    return Transformer(config, 31).cuda().eval()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_row_in_which_nothing_is_visible_gives_no_nan(precision: torch.dtype) -> None:
    model = small_model().train()
    batch = Batch.of(SOURCES, TARGETS)
    nothing = torch.zeros_like(batch.source.segments[:1])
    batch.source.segments[:1] = nothing - 1  # no target position has this segment
    with torch.autocast("cuda", precision, enabled=precision != torch.float32):
        loss = summed_loss(model, batch.to(torch.device("cuda")), 0.1)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


def test_fused_attention_equals_explicit_attention() -> None:
    model = small_model()
    source = Side.of(SOURCES).to(torch.device("cuda"))
    with torch.no_grad():
        fused, explicit = model.encode(source).states, model.encode(source, []).states
    real = source.segments > 0
    torch.testing.assert_close(fused[real], explicit[real], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_translation_scores_what_the_search_reports(norm: str) -> None:
    model = small_model(norm)
    source = Side.of([[*ids, EOS] for ids in SOURCES]).to(torch.device("cuda"))
    for ids, found in zip(SOURCES, search([model], source, 5, 0.6, 7, 3), strict=True):
        for hypothesis in found:
            assert score([model], [ids], [hypothesis.ids])[0].normalised(0.6) == pytest.approx(
                hypothesis.score, rel=1e-4
            )


def test_gpu_and_cpu_agree() -> None:
    model, batch = small_model(), Batch.of(SOURCES, TARGETS)
    with torch.no_grad():
        on_gpu = summed_loss(model, batch.to(torch.device("cuda")), 0.1).item()
        on_cpu = summed_loss(model.cpu(), batch, 0.1).item()
    assert on_gpu == pytest.approx(on_cpu, rel=1e-4)


def test_a_deterministic_run_resumes_exactly(reversals: Path, tmp_path: Path) -> None:
    def train(run: str, steps: int, resume: bool) -> None:
        words = [
            *MINUSCULE,
            "training.deterministic=true",
            f"training.steps={steps}",
            "training.save_every=1000",
        ]
        device, console = torch.device("cuda"), Console(quiet=True)
        run_training(read_recipe("tiny", words), reversals / "data", tmp_path / run, device, console, resume)

    try:
        train("straight", 17, False)
        train("stopped", 7, False)
        train("stopped", 17, True)
    finally:
        torch.use_deterministic_algorithms(False)
    for file in (WEIGHTS, STATE):
        one, other = (read_tensors(newest_good(tmp_path / run) / file) for run in ("straight", "stopped"))
        assert [name for name in one if not torch.equal(one[name], other[name])] == []


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_recorded_step_leaves_the_gradients_of_one_that_is_not(rows: int) -> None:
    # Three pairs, a row each; of two at once the second part is smaller than what was recorded.
    model = small_model()
    orders = ([0, 1, 2], [2, 0, 1], [1, 1, 0])
    updates = [
        Update(Batch.of([SOURCES[n] for n in order], [TARGETS[n] for n in order]), order, 13) for order in orders
    ]
    found = []
    for is_recorded in (True, False):
        gradients = Gradients(model, TrainingConfig(precision="float32"))
        gradients._is_recorded = is_recorded
        for update in updates:
            loss = gradients.of(update, Progress(rows_at_once=rows))
            found.append([loss, *(each.grad.clone() for each in model.parameters() if each.grad is not None)])
        assert (gradients._recording is not None) == is_recorded
    for recorded, plain in zip(found[:3], found[3:], strict=True):
        for one, other in zip(recorded, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_recorded_batch_norm_counts_each_batch_once() -> None:
    # The longest source and the longest target are in each, since all rows of a run are of one length.
    orders = ([0, 1, 2], [2, 1, 0], [1, 0])
    updates = [Update(Batch.of([SOURCES[n] for n in each], [TARGETS[n] for n in each]), each, 13) for each in orders]
    counted = []
    for is_recorded in (True, False):
        model = small_model(kind="batch").train()
        gradients = Gradients(model, TrainingConfig(precision="float32"))
        gradients._is_recorded = is_recorded
        for module in model.modules():
            module.train(not isinstance(module, torch.nn.Dropout))
        for update in updates:
            gradients.of(update, Progress())
        assert (gradients._recording is not None) == is_recorded
        counted.append(dict(model.named_buffers()))
    assert len(counted[0]) > 10
    for name, one in counted[0].items():
        torch.testing.assert_close(one, counted[1][name], rtol=1e-4, atol=1e-6)


def test_a_step_that_is_compiled_learns_the_same(
    reversals: Path, tmp_path: Path, run_dragoman: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    # Rows that do not divide the update evenly, so that the last part is smaller than what was recorded. In a process
    # of its own: torch.compile cannot follow the checks of types that the tests have woven into the package.
    words = [*MINUSCULE, "training.batch_tokens=336", "training.steps=13", "training.precision=float32"]
    losses = []
    for name in ("true", "false"):
        given = [*words, f"training.compile={name}", "model.dropout=0.0", "--data", reversals / "data"]
        ended = run_dragoman("train", "tiny", *given, "--out", tmp_path / name, "--device", "cuda")
        assert (ended.returncode, "cannot be recorded" in ended.stdout + ended.stderr) == (0, False), ended.stderr
        losses.append([event["loss"] for event in read_journal(tmp_path / name) if event["event"] == "step"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_search_waits_for_the_gpu_only_when_it_asks_who_is_done(recwarn: pytest.WarningsRecorder) -> None:
    model = small_model()
    source = Side.of([[*range(5, 30), EOS]] * 7).to(torch.device("cuda"))
    search([model], source, 4, 0.6, 53)  # everything is loaded and allocated
    recwarn.clear()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        found = search([model], source, 4, 0.6, 53)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    longest = max(len(hypothesis.ids) for each in found for hypothesis in each)
    questions = 2 + longest // STEPS_BETWEEN_QUESTIONS["cuda"]
    assert len([each for each in recwarn if "synchroniz" in str(each.message)]) <= 6 * questions
