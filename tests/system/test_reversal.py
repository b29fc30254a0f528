"""Each model learns to reverse digits, from a fresh seed."""

from pathlib import Path

import dragoman


def test_a_trained_transformer_reverses_digits_it_never_saw(reverser: Path, reversals: Path) -> None:
    sources = (reversals / "test.fwd").read_text().split()
    translations = [each.text for each in dragoman.load(reverser).translate(sources)]
    right = sum(text == source[::-1] for text, source in zip(translations, sources, strict=True))
    assert right / len(sources) >= 0.98
