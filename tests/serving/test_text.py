# ruff: noqa: RUF001 - full stops of other scripts look like ours
"""The laws of cutting and joining: whatever the text, nothing is lost, and what must survive does."""

import html
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.decoding.translator import Translator
from dragoman.models.transformer import Transformer, TransformerConfig
from dragoman.recipe import DecodingConfig
from dragoman.serving.documents import Document
from dragoman.serving.guard import trouble
from dragoman.serving.markup import placeholders, split_html, split_placeholders
from dragoman.serving.sentences import split_sentences
from dragoman.serving.tasks import Answer, Pair, Translate

BITS = ["<b>", "</b>", "<!--", "-->", '<a href="x. Y">', "<script>", "</script>", "<p translate=no>", "</p>", "<", ">",
        "{name}", "%1$s", "%", "{{ x }}", "&amp;", "&nbsp;", ". ", "。", "! ", "\n", " ", "\u00a0", "Dr.", "z.B.", "3.",
        "a", "B", "12", '"', "'", "\u2028", "\U0001f600"]  # fmt: skip
texts = st.lists(st.sampled_from(BITS) | st.text(max_size=5), max_size=30).map("".join)


@given(texts)
def test_a_text_is_its_sentences_and_its_gaps(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert len(parts) % 2 == 1
    assert not any(gap.strip() for gap in parts[::2])
    assert all(sentence and sentence == sentence.strip() for sentence in parts[1::2])


@given(texts)
def test_a_text_is_its_runs_and_its_markup(text: str) -> None:
    for split in (split_html, split_placeholders):
        parts = split(text)
        assert "".join(parts) == text
        assert len(parts) % 2 == 1
    assert not any(placeholders(run) for run in split_placeholders(text)[::2])


@given(texts, st.sampled_from(["text", "html"]))
def test_a_document_with_its_own_sentences_is_itself_and_with_others_keeps_what_stands_between(
    text: str, format: str
) -> None:
    document = Document.of(text, format)
    assert "".join(document.parts) == text
    assert all(any(map(str.isalnum, sentence)) for sentence in document.sentences)
    if format == "text":
        assert document.joined(document.sentences) == text
    joined = document.joined(["<i>&1"] * len(document.sentences))
    if format == "html":
        assert split_html(joined)[1::2] == split_html(text)[1::2]
        assert html.unescape(joined).count("<i>&1") >= len(document.sentences)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "No." She left.', ['He said "No."', "She left."]),
        ("Dr. Who met Mr. X. at 3.14 p.m. on Monday.", ["Dr. Who met Mr. X. at 3.14 p.m. on Monday."]),
        ("Am 3. Mai, z. B. um 8. Er kam 1999. Dann nicht.", ["Am 3. Mai, z. B. um 8. Er kam 1999.", "Dann nicht."]),
        ("Yahoo! is old. e.g. this", ["Yahoo! is old. e.g. this"]),
        ("你好。再见！真的？", ["你好。", "再见！", "真的？"]),
        ("「はい。」と言った。次", ["「はい。」", "と言った。", "次"]),
        ("नमस्ते। आप कैसे हैं?", ["नमस्ते।", "आप कैसे हैं?"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("a\n- b\r\n\r\nc", ["a", "- b", "c"]),
        ('See <a title="A. B">it</a>. Now', ['See <a title="A. B">it</a>.', "Now"]),
        ("", []),
        (" \n\t", []),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text: str, sentences: list[str]) -> None:
    assert split_sentences(text)[1::2] == sentences


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("%s and %1$s, %(name)d %.2f%%", ["%%", "%(name)d", "%.2f", "%1$s", "%s"]),
        ("{name} {0} {} ${x} {{ y }}", ["${x}", "{0}", "{name}", "{{ y }}", "{}"]),
        ('<b>x</b> <img src="a b">', ["</b>", "<b>", '<img src="a b">']),
        ("100 % of it, 5 < 6 > 4, {not this one}", []),
    ],
)
def test_placeholders_are_known(text: str, marks: list[str]) -> None:
    assert sorted(placeholders(text)) == sorted(marks)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("a<b title='>'>c</b>", ["a", "c"]),
        ("a<script>b<c></script>d", ["a", "d"]),
        ("a<div translate=no>b<div>c</div>d</div>e", ["a", "e"]),
        ("a<code>b</code>c<style>d", ["a", "c"]),
        ("1 < 2 <!-- x > y -->z", ["1 < 2 ", "z"]),
        ('a <br translate="no"> b<span class="x notranslate">c</span>', ["a ", " b"]),
        ("a<b", ["a"]),
    ],
)
def test_only_language_is_translated_in_html(text: str, runs: list[str]) -> None:
    assert [run for run in split_html(text)[::2] if run] == runs


@pytest.mark.parametrize(
    "bit", [*BITS, '<a "', "<a '", "<!", "<p translate=no>x", "</", "<code>", "{" * 3, "aaaa", "1. "]
)
def test_a_stranger_cannot_make_it_take_long(bit: str) -> None:
    text = (bit * 60_000)[:60_000]
    begun = time.process_time()
    Document.of(text, "html")
    Document.of(text, "text")
    placeholders(text)
    assert time.process_time() - begun < 3  # seconds; what is quadratic takes minutes


def test_nothing_is_no_translation_but_of_nothing() -> None:
    assert trouble("Two dogs", "") == trouble("Two dogs", " ") == "empty"
    assert trouble("", "") is trouble(" \n", "") is None


def test_a_loop_is_noticed_and_a_repetition_of_the_source_is_none() -> None:
    assert trouble("Two dogs", "Zwei Hunde") is None
    assert trouble("Two dogs run", "Hunde die sich sich sich sich sich sich") == "repetition"
    assert trouble("ha ha ha ha ha ha ha", "ha ha ha ha ha ha ha ha") is None
    assert trouble("1000000000000000000000", "1000000000000000000000") is None
    assert (
        trouble("Hi", "A text that goes on and on, though never in quite the same words, and finds no end") == "length"
    )
    assert (
        trouble(
            "你好，今天天气很好，我们去公园走走吧。",
            "Hello, the weather is fine today, so let us go for a walk in the park.",
        )
        is None
    )


@pytest.mark.parametrize("is_mended", [True, False])
def test_a_loop_is_decoded_again_and_the_answer_says_so(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, is_mended: bool
) -> None:
    # A model that has learned nothing is sure of nothing: what it draws is never what it found.
    torch.manual_seed(17)
    vocabulary = translator.target_vocabulary
    model = Transformer(TransformerConfig(layers=1, width=8, hidden=11, heads=1, longest=61), len(vocabulary)).eval()
    unsure = Translator([model], translator.source_vocabulary, vocabulary, DecodingConfig(beam=3, extra=5))
    first = unsure.translate(["12345678901234567"])[0].text
    found_wrong = [first] if is_mended else []

    def trouble(source: str, translation: str) -> str | None:
        return "repetition" if translation in found_wrong or not is_mended else None

    monkeypatch.setattr("dragoman.serving.tasks.trouble", trouble)
    (answer,) = Translate(Pair("en", "de"), 2).run(unsure, ["12345678901234567"])
    in_vain = "" if is_mended else ", in vain"
    assert answer.warnings == [f"repetition: drawn instead of searched for{in_vain}"]
    assert (answer.texts[0] != first) or not is_mended


@pytest.mark.parametrize("text", ["12 {name} 345", "<b>12</b> 77 %1$s", "%d%d", "{a}{b} 9 {c}"])
def test_placeholders_survive_a_model_that_knows_none(translator: Translator, text: str) -> None:
    (answer,) = Translate(Pair("en", "de"), 3).run(translator, [text])
    assert isinstance(answer, Answer)
    assert all(placeholders(each) == placeholders(text) for each in answer.texts)
