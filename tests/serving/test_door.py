"""Who is let in, how often, and what every answer carries."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dragoman.decoding.translator import Translator
from dragoman.errors import ConfigError
from dragoman.serving.app import Server
from dragoman.serving.files import KEPT_BYTES, KEPT_SECONDS, Files
from dragoman.serving.languages import Languages, choose_locale, name_of, normalise_code, outward_code
from dragoman.serving.limits import Keys, Limits, Rate, client_of
from dragoman.serving.tasks import Pair
from tests.serving.conftest import inside, run

NewServer = Callable[..., Server]
FIELDS = {"q": "123", "source": "en", "target": "de"}
SECRET = "a-secret-key"


def test_with_keys_everything_wants_one_but_what_is_open(new_server: NewServer) -> None:
    async def work() -> None:
        server = new_server(keys=Keys(["another", SECRET]))
        async with inside(server) as client:
            closed = ("/translate", "/detect", "/score", "/attention", "/inside", "/positions", "/translate_file")
            for path in (*closed, "/suggest"):
                refused = await client.post(path, json=FIELDS)
                assert refused.status_code == 400
                assert refused.json() == {"error": "Please contact the server operator to get an API key"}
                wrong = await client.post(path, json=FIELDS | {"api_key": "a-secret-kez"})
                assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
            assert (await client.get("/metrics")).status_code == 400
            bearer = {"Authorization": f"Bearer {SECRET}"}
            answers = [
                await client.post("/translate", json=FIELDS | {"api_key": SECRET}),
                await client.post("/translate", data=FIELDS, params={"api_key": SECRET}),
                await client.post("/translate", data=FIELDS, headers=bearer),
                await client.get("/metrics", headers=bearer),
            ]
            assert [answer.status_code for answer in answers] == [200] * 4
            assert SECRET not in answers[-1].text
            for path in ("/", "/docs", "/spec", "/languages", "/health", "/health/live", "/frontend/settings"):
                assert (await client.get(path)).status_code == 200
            settings = (await client.get("/frontend/settings")).json()
            assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)
            odd = await client.post("/translate", json=FIELDS | {"api_key": [SECRET]})
            assert odd.status_code == 403

    run(work())


def test_keys_are_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# of the office\n\n {SECRET} \n")
    keys = Keys.read(tmp_path / "keys")
    assert keys.allow(SECRET)
    assert not any(map(keys.allow, ["", "# of the office", SECRET[:-1], f"{SECRET} "]))
    (tmp_path / "none").write_text("#\n")
    with pytest.raises(ConfigError, match="holds no key"):
        Keys.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Keys.read(tmp_path / "absent")


def test_a_client_that_asks_too_often_is_told_when_to_come_back(new_server: NewServer) -> None:
    async def work() -> None:
        server = new_server(rate=Rate(2))
        async with inside(server) as client:
            codes = [(await client.post("/detect", json=FIELDS)).status_code for _ in range(2)]
            # Nobody believes a client that says to be another one.
            refused = await client.post("/detect", json=FIELDS, headers={"X-Forwarded-For": "192.0.2.99"})
            assert (codes, refused.status_code) == ([200, 200], 429)
            assert refused.json() == {"error": "Slowdown: 2 per 1 minute"}
            assert 1 <= int(refused.headers["Retry-After"]) <= 30
            assert (await client.get("/languages")).status_code == 200
        async with inside(server, "192.0.2.8") as other:
            assert (await other.post("/detect", json=FIELDS)).status_code == 200
        async with inside(new_server(rate=Rate(2), keys=Keys([SECRET]))) as client:
            guesses = [await client.post("/detect", json=FIELDS | {"api_key": f"{n}"}) for n in range(3)]
            assert [guess.status_code for guess in guesses] == [403, 403, 429]
            assert (await client.post("/detect", json=FIELDS | {"api_key": SECRET})).status_code == 200

    run(work())


def test_a_rate_is_so_many_a_minute_and_fills_again() -> None:
    rate = Rate(6)
    assert [rate.seconds_to_wait("a", 100.0) for _ in range(8)] == [0] * 6 + [10, 10]
    assert rate.seconds_to_wait("b", 100.0) == 0
    assert [rate.seconds_to_wait("a", 110.0), rate.seconds_to_wait("a", 110.0)] == [0, 10]
    assert [rate.seconds_to_wait("a", 1e6) for _ in range(7)] == [0] * 6 + [10]
    assert client_of("2001:db8::1") == client_of("2001:db8::2") != client_of("2001:db8:0:1::1")
    assert client_of("192.0.2.1") != client_of("192.0.2.2")


def test_every_answer_keeps_a_browser_safe(new_server: NewServer) -> None:
    async def work() -> None:
        async with inside(new_server()) as client:
            for answer in (
                await client.get("/"),
                await client.get("/page/plain.css"),
                await client.get("/nowhere"),
                await client.post("/translate", json=FIELDS, headers={"Origin": "https://a.example"}),
                await client.options("/translate", headers={"Origin": "https://a.example"}),
            ):
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert "require-trusted-types-for" in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["x-request-id"]
                assert not [name for name in answer.headers if name.startswith("access-control")]
            script = await client.post("/translate", json=FIELDS | {"source": "<script>"})
            assert script.headers["content-type"] == "application/json"

    run(work())


def test_only_origins_that_were_named_may_ask_from_a_page(new_server: NewServer) -> None:
    async def work() -> None:
        preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        async with inside(new_server(origins=["https://a.example"])) as client:
            named = await client.options("/translate", headers={"Origin": "https://a.example", **preflight})
            assert named.headers["access-control-allow-origin"] == "https://a.example"
            other = await client.options("/translate", headers={"Origin": "https://b.example", **preflight})
            assert "access-control-allow-origin" not in other.headers
        async with inside(new_server(origins=["*"])) as client:
            everybody = await client.post("/translate", json=FIELDS, headers={"Origin": "https://b.example"})
            assert everybody.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in everybody.headers

    run(work())


def test_neither_log_nor_metrics_say_what_was_asked_or_by_whom(
    new_server: NewServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> str:
        async with inside(new_server(keys=Keys([SECRET]))) as client:
            fields = FIELDS | {"q": "31415926", "api_key": SECRET}
            answer = await client.post("/translate", params=fields)
            assert answer.status_code == 200
            assert (await client.get("/31415926")).status_code == 404
            return (await client.get("/metrics", params={"api_key": SECRET})).text

    with caplog.at_level(logging.INFO, "dragoman.requests"):
        metrics = run(work())
    lines = [record.getMessage() for record in caplog.records if record.name == "dragoman.requests"]
    assert [line.split()[:3] for line in lines] == [
        ["POST", "/translate", "200"],
        ["GET", "other", "404"],
        ["GET", "/metrics", "200"],
    ]
    for private in ("31415926", SECRET, "192.0.2.7"):
        assert not [line for line in lines if private in line]
        assert private not in metrics
    assert 'dragoman_requests_total{path="/translate",status="200"} 1.0' in metrics
    assert 'dragoman_requests_total{path="other",status="404"} 1.0' in metrics


def test_a_mistake_of_ours_is_said_in_json_and_its_text_is_not_logged(
    new_server: NewServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(fields: dict[str, str]) -> None:
        raise ValueError(fields["q"])

    async def work() -> None:
        server = new_server()
        monkeypatch.setattr(server.desk, "translate", fail)
        async with inside(server) as client:
            answer = await client.post("/translate", json=FIELDS)
            assert (answer.status_code, answer.json()) == (
                500,
                {"error": "The server made a mistake; its log says more"},
            )

    run(work())
    assert "ValueError in a request" in caplog.text
    assert not [message for message in caplog.messages if message.endswith(f"{FIELDS['q']}\n")]


def test_too_much_is_refused_before_any_work(new_server: NewServer) -> None:
    async def work() -> None:
        server = new_server(Limits(tokens=50, seconds=5.0))
        async with inside(server) as client:
            answer = await client.post("/translate", json=FIELDS | {"q": "1" * 100})
            assert answer.status_code == 413
            assert "exceeds text limit (50)" in answer.json()["error"]
            longer = await client.post("/score", json=FIELDS | {"q": "1" * 9000, "translation": "1"})
            assert longer.status_code == 400
            assert "is more than the model's" in longer.json()["error"]

    run(work())


def test_who_is_closing_says_so(new_server: NewServer) -> None:
    async def work() -> None:
        server = new_server()
        async with inside(server) as client:
            assert (await client.get("/health/ready")).status_code == 200
            server.door.is_closing = True
            ready = await client.get("/health/ready")
            assert (ready.status_code, ready.headers["connection"]) == (503, "close")
            assert (await client.post("/translate", json=FIELDS)).status_code == 200
        assert (await _without_thread(server)).status_code == 503

    async def _without_thread(server: Server) -> httpx.Response:
        transport = httpx.ASGITransport(server.door)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get("/health/live")

    run(work())


def test_files_are_forgotten_when_they_are_old_or_too_many() -> None:
    now = [0.0]
    files = Files(clock=lambda: now[0])
    first = files.keep(b"1", ".txt")
    assert files.find(first) is not None
    assert len({files.keep(b"2", ".txt") for _ in range(50)}) == 50
    large = files.keep(b"3" * KEPT_BYTES, ".html")
    assert files.find(first) is None
    assert files.find(large) is not None
    now[0] = KEPT_SECONDS + 1
    assert files.find(large) is None


def test_languages_have_one_spelling_inside_and_theirs_outside() -> None:
    assert [normalise_code(code) for code in ("ZH-hans", "zh-Hant", "pt_BR", "EN", "zh")] == [
        "zh",
        "zt",
        "pb",
        "en",
        "zh",
    ]
    assert [outward_code(code) for code in ("zh", "zt", "pb", "en")] == ["zh-Hans", "zh-Hant", "pt-BR", "en"]
    english = choose_locale([])
    assert [name_of(code, english) for code in ("zh", "pb", "en", "xx")] == [
        "Chinese (Simplified)", "Portuguese (Brazil)", "English", "xx",
    ]  # fmt: skip
    languages = Languages([Pair("en", "de"), Pair("fr", "de"), Pair("en", "fr")])
    assert languages.codes == ["en", "fr", "de"]
    assert languages.targets("en") == ["de", "fr"]
    assert languages.detect_source("Bonjour tout le monde, comment allez-vous ?", "de")[0] == "fr"
    assert languages.detect_source("123", "fr") == ("en", 0.0)


def test_a_client_that_leaves_takes_its_work_with_it(new_server: NewServer) -> None:
    async def work() -> None:
        server = new_server()
        server.batcher.start()
        texts = [f"{number}" for number in range(10_000, 10_900)]
        gone = asyncio.Event()

        async def receive() -> dict[str, object]:
            if not gone.is_set():
                gone.set()
                body = "&".join(["source=en", "target=de", "q=" + "%0A".join(texts)]).encode()
                return {"type": "http.request", "body": body}
            while not server.batcher.counts.tokens:
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            sent.append(message)

        sent: list[object] = []
        headers = [(b"content-type", b"application/x-www-form-urlencoded")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": headers}
        await server.door(scope, receive, send)
        assert server.batcher.counts.tokens == server.batcher.counts.orders == 0
        assert "dragoman_cancelled_total 1.0" in server.metrics.text().decode()
        server.batcher.stop()

    run(work())


def test_a_pair_is_chosen_by_its_languages(translator: Translator) -> None:
    async def work() -> None:
        server = Server({Pair("en", "de"): translator, Pair("zh", "en"): translator}, Limits())
        async with inside(server) as client:
            languages = (await client.get("/languages")).json()
            assert [(each["code"], each["targets"]) for each in languages] == [
                ("en", ["de"]), ("zh-Hans", ["en"]), ("de", []),
            ]  # fmt: skip
            for source, target, status in (
                ("en", "de", 200), ("zh-Hans", "EN", 200), ("zh", "en", 200), ("zh", "de", 400), ("auto", "en", 200),
            ):  # fmt: skip
                answer = await client.post("/translate", json=FIELDS | {"source": source, "target": target})
                assert answer.status_code == status, (source, target)
            assert answer.json()["detectedLanguage"] == {"confidence": 0.0, "language": "zh-Hans"}

    run(work())
