"""The server as a process: its port, its signals, and what it does with those who mean no good."""

import asyncio
import gzip
import json
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from dragoman.commands.serving import find_pair
from dragoman.saved import find_model, read_card, write_card
from tests.serving.conftest import SECONDS, Running, serving
from tests.system.conftest import Call, call  # noqa: F401

FIELDS = {"q": "123", "source": "en", "target": "de"}
MALFORMED = [
    b'{"q": 5}', b'{"q": [1]}', b'{"q": {}}', b'{"q": [""], "source": 1}', b'{"q": "\\ud800"}', b'{"q": NaN}',
    b"[" * 100_000, b'{"q": ' * 100_000, b"[1]", b'"q"', b"null", b"", b"{", b"\xff\xfe",
    b'{"q": "1", "source": "\\ud800"}',
    b'{"q": "1", "source": [], "target": {}}', b'{"q": "1", "source": "en", "target": "de", "alternatives": "x"}',
    b'{"q": "1", "source": "en", "target": "de", "alternatives": 1e400}',
    b'{"q": "1", "source": "en", "target": "de", "alternatives": ' + b"9" * 5000 + b"}",
    b'{"q": "1", "source": "en", "target": "de", "format": ["text"]}', b'{"q": ["1", null], "source": "en"}',
]  # fmt: skip


def address_of(running: Running) -> tuple[str, int]:
    host, _, port = running.url.removeprefix("http://").partition(":")
    return host, int(port)


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    with socket.create_connection(address_of(running), timeout=SECONDS) as connection:
        yield connection


def is_error(answer: httpx.Response) -> bool:
    named = set(answer.json()) == {"error"} and answer.headers["content-type"] == "application/json"
    return 400 <= answer.status_code < 500 and named and "Traceback" not in answer.text


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_request_is_refused_in_json(client: httpx.Client, body: bytes) -> None:
    for path in ("/translate", "/detect", "/score", "/attention", "/inside", "/positions", "/translate_file"):
        answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
        if path in ("/detect", "/attention", "/inside", "/positions") and answer.status_code == 200:
            continue  # what is wrong is no field of theirs
        assert is_error(answer), (path, answer.text)


def test_other_ways_to_be_wrong_are_refused_in_json(client: httpx.Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for answer in (
        client.post("/translate", content=b"q=%FF%FE&source=en&target=de", headers=form),
        client.post("/translate", content=b"a=1&" * 2000, headers=form),
        client.post("/translate?q=%FF", content=b""),
        client.post("/translate", content=b"q", headers={"Content-Type": "text/xml"}),
        client.post("/translate", content=b"q", headers={"Content-Type": "multipart/form-data"}),
        client.post("/translate", content=b"q", headers={"Content-Type": "multipart/form-data; boundary=x"}),
        client.post("/translate", content=gzip.compress(b" " * 10_000_000), headers={"Content-Encoding": "gzip"}),
        client.put("/translate", json=FIELDS),
        client.get("/translate", params=FIELDS),
        client.post("/nowhere"),
        client.request("DELETE", "/"),
        client.request("OPTIONS", "/translate"),
    ):
        assert is_error(answer), answer.text
    assert client.head("/").status_code == 200
    assert client.head("/nowhere").status_code == 404


def test_what_is_no_http_is_refused_in_json(running: Running) -> None:
    with connected(running) as connection:
        connection.sendall(b"what?\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body).keys() == {"error"}


def test_a_head_without_end_is_cut_off(running: Running) -> None:
    with connected(running) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(1000):
                connection.sendall(b"X: " + b"x" * 10_000 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            return
    pytest.fail("ten megabytes of head were read")


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_huge_body_is_refused_and_not_kept(running: Running, client: httpx.Client, is_chunked: bool) -> None:
    client.post("/translate", json=FIELDS)
    before = running.memory()
    megabyte = b" " * (1 << 20)
    content = (megabyte for _ in range(200))
    headers = {"Content-Type": "application/json"} | ({} if is_chunked else {"Content-Length": str(200 << 20)})
    answer = httpx.post(f"{running.url}/translate", content=content, headers=headers, timeout=SECONDS)
    assert answer.status_code == 413
    assert answer.json() == {"error": "Invalid request: body exceeds the limit of 2097152 bytes"}
    assert running.memory() - before < 20 << 20


def test_whoever_leaves_while_waiting_is_counted(running: Running, client: httpx.Client) -> None:
    def cancelled() -> float:
        return float(re.search(r"^dragoman_cancelled_total (\S+)", client.get("/metrics").text, re.MULTILINE)[1])  # type: ignore[index]

    before = cancelled()
    body = json.dumps(FIELDS | {"q": [f"{number}" for number in range(100_000, 101_000)]}).encode()
    with connected(running) as connection:
        head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        time.sleep(0.1)
    deadline = time.monotonic() + SECONDS
    while cancelled() == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    waiting = r"^dragoman_waiting_tokens (\S+)"
    assert float(re.search(waiting, client.get("/metrics").text, re.MULTILINE)[1]) == 0  # type: ignore[index]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_ends_it_after_what_was_begun(reverser: Path, tmp_path: Path, number: signal.Signals) -> None:
    async def work(running: Running) -> None:
        texts = [str(text) for text in range(300_000, 300_400)]
        async with httpx.AsyncClient(base_url=running.url, timeout=SECONDS) as client:
            begun = [
                asyncio.create_task(client.post("/translate", json=FIELDS | {"q": texts[n : n + 20]}))
                for n in range(0, len(texts), 20)
            ]
            await asyncio.sleep(0.2)
            running.process.send_signal(number)
            await asyncio.sleep(0.1)
            ready = await client.get("/health/ready")
            assert (ready.status_code, ready.headers["connection"]) == (503, "close")
            answers = await asyncio.gather(*begun)
            assert [len(answer.json()["translatedText"]) for answer in answers] == [20] * len(begun)
        assert running.process.wait(SECONDS) == (0 if number == signal.SIGTERM else 130)
        with pytest.raises(httpx.ConnectError):
            httpx.get(running.url)

    with serving(reverser, tmp_path / "log") as running:
        asyncio.run(work(running))
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_port_in_use_is_one_clear_error(running: Running, reverser: Path, call: Call) -> None:  # noqa: F811
    port = address_of(running)[1]
    ended = call("serve", reverser, "--port", str(port))
    assert ended.code == 2
    assert ended.err.startswith(f"error: --port: 127.0.0.1:{port} cannot be had: address already in use\n\nhint: ")


def test_a_model_that_cannot_serve_is_told_before_a_port_opens(
    reverser: Path,
    tmp_path: Path,
    call: Call,  # noqa: F811
) -> None:
    def said(*words: str | Path) -> str:
        ended = call("serve", "--port", "0", *words)
        assert (ended.code, ended.out) == (2, "")
        return ended.err

    assert "no such folder" in said(tmp_path / "absent")
    model = tmp_path / "model"
    shutil.copytree(find_model(reverser), model)
    assert "a model from en into de has been given already" in said(model, f"EN:de={reverser}")
    write_card(model, {name: value for name, value in read_card(model).items() if name != "languages"})
    assert f"its card does not say its languages\n\nhint: say them, such as en:de={model}" in said(model)
    with (model / "weights.safetensors").open("r+b") as file:
        file.write(b"\x00")
    assert "corrupt" in said(f"en:de={model}")
    assert "no such address" in said(reverser, "--host", "nowhere.invalid")
    assert call("export", reverser, "--format", "ctranslate2", "--out", tmp_path / "converted").code == 0
    assert "a converted copy shows no attention" in said(tmp_path / "converted", "--engine", "ctranslate2")
    assert "cannot be read" in said(reverser, "--keys", tmp_path / "absent")


def test_without_a_model_those_that_come_along_are_served_by_the_fastest_engine(tmp_path: Path) -> None:
    with serving(None, tmp_path / "log") as running, httpx.Client(base_url=running.url, timeout=SECONDS) as client:
        models = client.get("/health").json()["models"]
        assert [(each["source"], each["target"]) for each in models] == [("en", "de"), ("en", "fr")]
        assert {(each["engine"], each["precision"]) for each in models} == {("ctranslate2", "int8")}
        for target, expected in (("de", "Vielen Dank"), ("fr", "Merci beaucoup")):
            asked = {"q": "Thank you very much.", "source": "en", "target": target}
            assert expected in client.post("/translate", json=asked).json()["translatedText"]


def test_a_run_is_searched_for_its_checkpoint_once(reverser: Path) -> None:
    for word in (str(reverser), f"en:de={reverser}"):
        folder, _ = find_pair(word)
        assert folder == find_model(reverser)  # where loading finds nothing more to search


def test_without_the_extra_it_says_what_to_install(
    reverser: Path,
    call: Call,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "dragoman.serving.app")
    ended = call("serve", reverser, "--port", "0")
    assert ended.code == 2
    assert ended.err == "error: serve: needs starlette\n\nhint: pip install 'dragoman[serve]'\n"
