"""A study writes into its own folder alone, and says under which conditions it ran."""

import sys
from pathlib import Path

import pytest
import torch

from dragoman.errors import ConfigError
from dragoman.study.report import Report
from dragoman.study.setting import check_folder, conditions, said


def test_a_folder_is_new_empty_or_the_studys_own(tmp_path: Path) -> None:
    check_folder("sizes", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    check_folder("sizes", tmp_path)
    Report("Sizes", "dragoman study sizes", [], {"study": "sizes"}).write(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")  # what else is there is left there
    check_folder("sizes", tmp_path)
    Report("Sizes", "dragoman study sizes", [], {"study": "sizes"}).write(tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "dear"
    with pytest.raises(ConfigError, match="holds something else than the report of study heads"):
        check_folder("heads", tmp_path)


@pytest.mark.parametrize("content", ["[]", "no JSON", '{"study": null}'])
def test_what_is_no_report_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ConfigError, match="holds something else") as refused:
        check_folder("sizes", tmp_path)
    assert refused.value.hint == "choose another --out"
    with pytest.raises(ConfigError, match="is a file"):
        check_folder("sizes", tmp_path / "results.json")


def test_a_missing_library_is_told_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="need matplotlib"):
        check_folder("sizes", tmp_path)


def test_conditions_name_date_hardware_and_versions() -> None:
    found = conditions(torch.device("cpu"))
    assert found["threads"] == torch.get_num_threads()
    assert torch.__version__ in said(found)
    assert str(found["date"]).count("-") == 2


def test_a_folder_must_be_writable_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "os.access", lambda path, mode: False
    )  # whoever runs the tests may be allowed to write anywhere
    with pytest.raises(ConfigError, match="cannot be written"):
        check_folder("sizes", tmp_path / "new" / "newer")
