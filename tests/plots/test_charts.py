"""What every picture is drawn with: the same picture is the same file, readable, in the format its name says."""

import re
import sys
from pathlib import Path

import pytest

from dragoman.errors import ConfigError
from dragoman.plots.charts import COLOURS, Line, as_svg, drawing, line_chart, save

LINES = [Line("one", [1, 2, 4, 8], [1.0, 0.5, 0.25, 0.125]), Line("two", [1, 8], [0.5, 0.5], [0.4, 0.3], [0.6, 0.7])]


def test_the_same_picture_is_the_same_file() -> None:
    pictures = [as_svg(line_chart(LINES, "tokens", "loss", log="xy")) for _ in range(2)]
    assert pictures[0] == pictures[1]
    assert pictures[0].startswith("<?xml")


def test_each_curve_has_its_colour_and_its_range() -> None:
    picture = as_svg(line_chart(LINES, "tokens", "loss"))
    assert all(colour in picture for colour in COLOURS[:2])
    assert COLOURS[2] not in picture
    assert len(re.findall(r"fill-opacity: 0.15|opacity: 0.15", picture)) >= 1


def test_the_suffix_says_the_format(tmp_path: Path) -> None:
    figure = line_chart(LINES, "tokens", "loss")
    save(figure, tmp_path / "a.svg")
    save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == as_svg(figure)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="the suffix says the format"):
        save(figure, tmp_path / "a.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg"]


def test_without_matplotlib_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="need matplotlib") as refused, drawing():
        pass
    assert "dragoman[plot]" in refused.value.report()
