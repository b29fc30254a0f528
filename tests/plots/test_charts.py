"""What every picture is drawn with: the same picture is the same file, readable, in the format its name says."""

import logging
import re
import sys
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dragoman.errors import ConfigError
from dragoman.plots.charts import (
    COLOURS,
    Line,
    as_svg,
    check_drawing,
    draw_matrix,
    drawing,
    line_chart,
    printable,
    save,
)

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
    with pytest.raises(ConfigError, match="need matplotlib") as refused:
        check_drawing()
    assert "dragoman[plot]" in refused.value.report()


def named(*names: str) -> Any:
    with drawing() as figure:
        draw_matrix(figure.subplots(), [[0.0, 1.0]] * len(names), names, ["a", "b"], digits=1)
        return figure


def test_text_stays_text_in_every_script(caplog: pytest.LogCaptureFixture) -> None:
    names = ["▁한국", "العربية", "東京", "$x$ $\\frac", "</s>"]
    picture = as_svg(named(*names))
    said = [element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert set(names) <= set(said)
    assert not caplog.records


def test_characters_that_no_font_has_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        save(named("▁東", "東京", "x"), tmp_path / "a.png")
    assert [record.getMessage() for record in caplog.records] == [
        "matplotlib's font lacks 2 of the characters, which are boxes: an .svg shows them"
    ]


def test_any_other_warning_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = named("x")
    monkeypatch.setattr(figure, "savefig", lambda *_, **__: warnings.warn("something else", UserWarning, stacklevel=1))
    with pytest.warns(UserWarning, match="something else"):
        save(figure, tmp_path / "a.png")


def test_what_cannot_be_seen_is_spelled_out() -> None:
    assert printable("a\x1b\n\u3000") == "a\\x1b\\n\\u3000"
    assert printable("▁한") == "▁한"
    ElementTree.fromstring(as_svg(named("\x00\x1b", "<&>")))


def test_numbers_are_dark_on_light_and_light_on_dark() -> None:
    texts = named("x").axes[0].texts
    assert [(text.get_text(), text.get_color()) for text in texts] == [("0.0", "black"), ("1.0", "white")]


def test_a_picture_is_whole_or_absent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        save(named("x"), tmp_path / "nowhere" / "a.png")
    assert missing.value.filename == str(tmp_path / "nowhere" / "a.png")
    assert list(tmp_path.iterdir()) == []
