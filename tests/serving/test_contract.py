"""LibreTranslate's contract: what its clients send and expect, against a real process."""

import json
import math
import re
import shlex
import subprocess

import httpx
import pytest
import torch
from libretranslatepy import LibreTranslateAPI

from dragoman.decoding.translator import Translator
from dragoman.models.positions import sinusoids
from tests.serving.conftest import Running

EN_DE = {"source": "en", "target": "de"}
NO_TARGET = "is not available as a target language"


@pytest.fixture(scope="module")
def expected(translator: Translator, numbers: list[str]) -> dict[str, str]:
    """What the command line would say."""
    chosen = numbers[:20]
    return {text: each.text for text, each in zip(chosen, translator.translate(chosen), strict=True)}


@pytest.fixture(scope="module")
def text(expected: dict[str, str]) -> str:
    return next(iter(expected))


def test_text_is_translated_however_it_is_sent(client: httpx.Client, text: str) -> None:
    fields = {"q": text, **EN_DE}
    answers = [
        client.post("/translate", json=fields),
        client.post("/translate", data=fields),
        client.post("/translate", params=fields),
        client.post("/translate", files={name: (None, value) for name, value in fields.items()}),
        client.post(
            "/translate", content=json.dumps(fields), headers={"Content-Type": "application/json;charset=utf-8"}
        ),
    ]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json().keys() == {"translatedText"}
    assert answers[0].headers["content-type"] == "application/json"


def test_a_list_is_answered_by_a_list_in_order_as_the_command_line_would(
    client: httpx.Client, expected: dict[str, str]
) -> None:
    answer = client.post("/translate", json={"q": [*expected, "", "\U0001f600 !"], **EN_DE}).json()
    assert len(answer["translatedText"]) == len(expected) + 2
    same = sum(a == b for a, b in zip(answer["translatedText"], expected.values(), strict=False))
    assert same >= len(expected) - 1  # the best checkpoint serves, the last one is compared
    assert answer["translatedText"][-2:] == ["", "\U0001f600 !"]


def test_the_source_may_be_guessed(client: httpx.Client) -> None:
    answer = client.post("/translate", json={"q": ["good morning everybody", "12"], "source": "AUTO", "target": "DE"})
    found = answer.json()["detectedLanguage"]
    assert found[0] == found[1]
    assert found[0]["language"] == "en"
    assert 50 < found[0]["confidence"] <= 100
    alone = client.post("/translate", data={"q": "12", "source": "auto", "target": "de"}).json()
    assert alone["detectedLanguage"] == {"confidence": 0.0, "language": "en"}


def test_alternatives_are_others(client: httpx.Client, text: str) -> None:
    fields = {"q": text, **EN_DE}
    answer = client.post("/translate", data=fields | {"alternatives": "3"}).json()
    assert 1 <= len(answer["alternatives"]) <= 3
    assert len({answer["translatedText"], *answer["alternatives"]}) == len(answer["alternatives"]) + 1
    several = client.post("/translate", json=fields | {"q": [text, "5"], "alternatives": 2}).json()
    assert [len(each) <= 2 for each in several["alternatives"]] == [True, True]
    assert "alternatives" not in client.post("/translate", json=fields | {"alternatives": -1}).json()
    assert client.post("/translate", json=fields | {"alternatives": 2, "format": "html"}).json()["alternatives"] == []


def test_html_keeps_its_markup_and_text_its_white_space(client: httpx.Client, text: str) -> None:
    alone = client.post("/translate", json={"q": text, **EN_DE}).json()["translatedText"]
    html = f'<p class="12">{text}<br/><code>34</code> &nbsp; <b>{text}</b></p><script>56</script>'
    answer = client.post("/translate", json={"q": html, **EN_DE, "format": "html"}).json()["translatedText"]
    assert answer == html.replace(text, alone)
    answer = client.post("/translate", json={"q": f" {text}\n\n\t{text} \r\n", **EN_DE}).json()["translatedText"]
    assert answer == f" {alone}\n\n\t{alone} \r\n"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": "1"}, "Invalid request: missing source parameter"),
        ({"q": "1", "source": "en"}, "Invalid request: missing target parameter"),
        ({"q": "1", "source": "zz", "target": "de"}, "zz is not supported"),
        ({"q": "1", "source": "en", "target": "zz"}, "zz is not supported"),
        ({"q": "1", "source": "en", "target": "auto"}, "auto is not supported"),
        ({"q": "1", "source": "de", "target": "en"}, f"English (en) {NO_TARGET} from German (de)"),
        ({"q": "1", "source": "en", "target": "en"}, f"English (en) {NO_TARGET} from English (en)"),
        ({"q": "1", **EN_DE, "format": "xml"}, "xml format is not supported"),
        ({"q": "1", **EN_DE, "alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"q": "1", **EN_DE, "alternatives": 10000}, "Invalid request: alternatives parameter must be <= 10"),
        ({"q": "1" * 10_001, **EN_DE}, "Invalid request: request (10001) exceeds text limit (10000)"),
        ({"q": ["1"] * 1001, **EN_DE}, "Invalid request: request (1001) exceeds text limit (1000)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_its_words(client: httpx.Client, fields: dict[str, object], error: str) -> None:
    answer = client.post("/translate", json=fields)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


def test_its_python_client_works_unchanged(running: Running, text: str, client: httpx.Client) -> None:
    api = LibreTranslateAPI(running.url, api_key="not needed")
    assert (
        api.translate(text, "en", "de") == client.post("/translate", json={"q": text, **EN_DE}).json()["translatedText"]
    )
    assert [each["code"] for each in api.languages()] == ["en", "de"]
    assert api.detect("Guten Morgen, wie geht es Ihnen heute?")[0]["language"] == "de"


@pytest.mark.parametrize(
    "words",
    [
        """-X POST URL/translate -H 'Content-Type: application/json'
           -d '{"q": "12", "source": "en", "target": "de", "format": "text", "alternatives": 3, "api_key": ""}'""",
        """-X POST URL/translate -H 'accept: application/json' -H 'Content-Type: application/x-www-form-urlencoded'
           -d 'q=12&source=en&target=de'""",
        "-F q=12 -F source=en -F target=de URL/translate",
        "URL/translate --data-urlencode 'q=<p>12 & 34</p>' -d source=auto -d target=de -d format=html",
    ],
)
def test_curl_gets_its_answer(running: Running, words: str) -> None:
    command = ["curl", "-s", "--fail-with-body", *shlex.split(words.replace("URL", running.url))]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["translatedText"]


def test_languages_have_names_in_the_language_one_wishes(client: httpx.Client) -> None:
    expected = [{"code": "en", "name": "English", "targets": ["de"]}, {"code": "de", "name": "German", "targets": []}]
    assert client.get("/languages").json() == expected
    assert [each["name"] for each in client.get("/languages?lang=fr").json()] == ["anglais", "allemand"]
    accepting = client.get("/languages", headers={"Accept-Language": "xx-yy-zz,ko;q=0.8"}).json()
    assert accepting[0]["name"] == "영어"
    assert client.post("/languages").status_code == 405


def test_detection_tells_what_it_knows(client: httpx.Client) -> None:
    found = client.post("/detect", data={"q": "Guten Abend, wie komme ich zum Bahnhof?"}).json()
    assert found[0]["language"] == "de"
    assert [each["confidence"] for each in found] == sorted((each["confidence"] for each in found), reverse=True)
    assert client.post("/detect", json={"q": "12345"}).json() == [{"confidence": 0.0, "language": "en"}]
    assert client.post("/detect", json={}).status_code == 400


def test_a_front_end_is_told_what_it_needs(client: httpx.Client) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings == {
        "alternatives": 10,
        "apiKeys": False,
        "charLimit": 10_000,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {"source": {"code": "auto", "name": "Auto Detect"}, "target": {"code": "de", "name": "German"}},
        "suggestions": False,
        "supportedFilesFormat": [".txt", ".html"],
    }
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["models"][0]["engine"] == "torch"
    assert client.get("/health/live").status_code == client.get("/health/ready").status_code == 200
    refused = client.post("/suggest", data={"q": "1", "s": "2", **EN_DE})
    assert (refused.status_code, refused.json()["error"]) == (403, "Suggestions are disabled on this server.")


@pytest.mark.parametrize(("name", "content"), [("a.txt", "{0}\n\n{0}\n"), ("a.HTML", "<p>{0}</p><!-- 1 --><i>{0}</i>")])
def test_a_file_is_translated_and_fetched(client: httpx.Client, text: str, name: str, content: str) -> None:
    alone = client.post("/translate", json={"q": text, **EN_DE}).json()["translatedText"]
    answer = client.post("/translate_file", data=EN_DE, files={"file": (name, content.format(text))})
    assert answer.status_code == 200, answer.text
    fetched = client.get(answer.json()["translatedFileUrl"])
    assert fetched.text == content.format(alone)
    assert fetched.headers["content-disposition"].startswith("attachment")
    assert fetched.headers["content-type"].startswith("text/html" if "HTML" in name else "text/plain")


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (None, "missing file parameter"),
        (("a.txt", b""), "empty file"),
        (("a.pdf", b"1"), "file format not supported"),
        (("a.txt", b"\xff\xfe\xff"), "file should be UTF-8"),
    ],
)
def test_a_file_that_cannot_be_translated_is_refused(
    client: httpx.Client, file: tuple[str, bytes] | None, error: str
) -> None:
    answer = client.post("/translate_file", data=EN_DE, files={"file": file} if file else None)
    assert (answer.status_code, answer.json()["error"]) == (400, f"Invalid request: {error}")
    assert client.get("/download_file/../../etc/passwd").status_code == 404
    assert client.get("/download_file/unknown.txt").status_code == 404


def test_our_own_fields_stand_beside_the_contracts(client: httpx.Client, text: str) -> None:
    fields = {"q": f"{text}\n {text}", **EN_DE, "scores": True, "alignment": True}
    answer = client.post("/translate", json=fields).json()
    assert answer.keys() == {"translatedText", "scores", "alignment"}
    assert answer["scores"] < 0
    words = [
        (fields["q"][slice(*link["source"])], answer["translatedText"][slice(*link["target"])])
        for link in answer["alignment"]
    ]
    assert words == [(text, answer["translatedText"].split()[0])] * 2
    assert all(0 < link["weight"] <= 1.001 for link in answer["alignment"])


def test_a_translation_is_scored_as_it_was_when_it_was_made(client: httpx.Client, text: str) -> None:
    made = client.post("/translate", json={"q": text, **EN_DE, "scores": True}).json()
    scored = client.post("/score", json={"q": text, "translation": made["translatedText"], **EN_DE}).json()
    assert scored["scores"] == pytest.approx(made["scores"], rel=1e-4)
    several = client.post(
        "/score", json={"q": [text, "1"], "translation": [made["translatedText"], "2"], **EN_DE}
    ).json()
    assert several["scores"][0] == pytest.approx(made["scores"], rel=1e-4)
    refused = client.post("/score", json={"q": [text, "1"], "translation": ["2"], **EN_DE})
    assert (refused.status_code, refused.json()["error"]) == (400, "Invalid request: 2 texts in q, 1 in translation")


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_attention_is_that_of_one_layer(client: httpx.Client, text: str, kind: str) -> None:
    found = client.post("/attention", json={"q": text, **EN_DE, "kind": kind, "layer": 1}).json()
    assert len(found["weights"]) == 4  # heads
    for head in found["weights"]:
        assert len(head) == len(found["queries"])
        assert {len(row) for row in head} == {len(found["keys"])}
        assert all(sum(row) == pytest.approx(1, abs=1e-2) for row in head)
    assert ("<s>" in found["keys"]) == (kind == "decoder")
    refused = client.post("/attention", json={"q": text, **EN_DE, "kind": kind, "layer": 2})
    assert refused.status_code == 400
    assert "this model has 2 of kind" in refused.json()["error"]


def test_a_heads_queries_and_keys_make_its_scores_and_these_its_weights(client: httpx.Client, text: str) -> None:
    for kind in ("encoder", "decoder", "cross"):
        fields = {"q": text, **EN_DE, "kind": kind, "layer": 1, "head": 2}
        found = client.post("/attention", json=fields).json()
        head = {name: torch.tensor(found["head"][name]) for name in ("queries", "keys", "scores")}
        channels = head["queries"].shape[1]
        assert head["queries"].shape == (len(found["queries"]), channels)
        assert torch.allclose(head["queries"] @ head["keys"].T / channels**0.5, head["scores"], atol=5e-3)
        seen = torch.tensor(found["weights"][2])
        scores = head["scores"].masked_fill(seen == 0, -torch.inf) if kind == "decoder" else head["scores"]
        assert torch.allclose(scores.softmax(-1), seen, atol=1e-3)
        refused = client.post("/attention", json=fields | {"head": 4})
        assert (refused.status_code, "there are no queries and keys" in refused.json()["error"]) == (400, True)


def test_the_inside_of_a_translation_is_what_wrote_it(client: httpx.Client, text: str) -> None:
    found = client.post("/inside", json={"q": text, **EN_DE}).json()
    scored = client.post("/score", json={"q": text, "translation": found["translatedText"], **EN_DE}).json()
    assert found["attention"] == {kind: {"layers": 2, "heads": 4} for kind in ("encoder", "decoder", "cross")}
    pieces = found["target"]["pieces"]
    assert [step["chosen"]["piece"] for step in found["steps"]] == pieces
    assert len(pieces) == scored["pieces"]
    total = sum(math.log(step["chosen"]["probability"]) for step in found["steps"])
    assert total == pytest.approx(scored["logProbabilities"], abs=2e-2)
    for step in found["steps"]:
        shares = [each["probability"] for each in step["candidates"]]
        assert len(shares) == 5
        assert shares == sorted(shares, reverse=True)
    assert [len(step["text"]) for step in found["steps"][1:]] == sorted(
        len(step["text"]) for step in found["steps"][1:]
    )
    assert found["beam"]["ended"][0]["text"] == found["translatedText"]
    assert found["beam"]["ended"][0]["score"] == pytest.approx(scored["scores"], abs=1e-3)
    assert [any(each["isShown"] for each in step) for step in found["beam"]["living"][: len(pieces) - 1]]
    (word,) = found["source"]["words"]
    assert word["text"] == text
    assert "".join(found["source"]["pieces"][n] for n in word["pieces"]).lstrip("▁") == text


@pytest.mark.parametrize("asked", [{"q": "1" * 3000}, {"q": "123", "translation": "3" * 3000}])
def test_a_text_that_is_never_translated_in_one_piece_is_not_looked_into(
    client: httpx.Client, asked: dict[str, str]
) -> None:
    for path in ("/inside", "/attention"):
        answer = client.post(path, json={**EN_DE, **asked})
        assert (answer.status_code, "pieces is more than" in answer.json()["error"]) == (400, True)


def test_a_translation_that_is_given_is_looked_into(client: httpx.Client, text: str) -> None:
    found = client.post("/inside", json={"q": text, **EN_DE, "translation": "7"}).json()
    assert found["translatedText"] == "7"
    assert [step["chosen"]["piece"] for step in found["steps"]] == found["target"]["pieces"]
    assert found["beam"]["ended"][0]["text"] != "7"


def test_positions_are_those_of_the_paper(client: httpx.Client) -> None:
    found = client.post("/positions", json={**EN_DE, "length": 7}).json()
    assert found["kind"] == "sinusoidal"
    assert torch.allclose(torch.tensor(found["table"]), sinusoids(7, 64), atol=1e-4)
    for length in (0, 129, "x"):
        assert client.post("/positions", json={**EN_DE, "length": length}).status_code == 400


def test_sentences_are_told_apart(client: httpx.Client, text: str) -> None:
    fields = {"q": f" {text}.\n\n{text} \U0001f600 {text}", **EN_DE, "sentences": True}
    answer = client.post("/translate", json=fields).json()
    spans = answer["sentences"]
    assert [fields["q"][slice(*each["source"])] for each in spans] == [f"{text}.", f"{text} \U0001f600 {text}"]
    assert answer["translatedText"][: spans[0]["target"][0]] == " "
    assert answer["translatedText"][spans[0]["target"][1] : spans[1]["target"][0]] == "\n\n"
    assert client.post("/translate", json=fields | {"format": "html"}).status_code == 400


def test_the_documents_need_no_network(client: httpx.Client) -> None:
    docs = client.get("/docs")
    assert "POST /translate" in docs.text
    for page in (docs, client.get("/")):
        assert page.headers["content-type"].startswith("text/html")
        assert "://" not in page.text
        assert all("src=" in script for script in re.findall(r"<script[^>]*>", page.text))
        assert "style=" not in page.text
        assert not re.search(r"\son\w+=", page.text)
    for name, kind in (("plain.css", "text/css"), ("main.js", "javascript"), ("icon.svg", "image/svg+xml")):
        file = client.get(f"/page/{name}")
        assert kind in file.headers["content-type"]
        assert file.headers["cache-control"] == "no-cache"
    assert client.get("/page/../app.py").status_code == 404
    assert client.get("/spec").json()["openapi"].startswith("3.")
