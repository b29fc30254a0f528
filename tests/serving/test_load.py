"""The server under load, and among people who mean no good: minutes each, but for one."""

import asyncio
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error

from tests.serving.conftest import SECONDS, Running, serving
from tests.serving.test_process import FIELDS, address_of, connected

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def fresh(reverser: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of its own, which nobody has used yet."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with serving(reverser, tmp_path_factory.mktemp("load") / "log", "--beam", "1") as process:
        yield process
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def post(running: Running, fields: dict[str, object], patience: float = 120) -> tuple[int, dict[str, str], bytes]:
    """A connection, a request, an answer: less work than a whole client, so that the server is what is measured."""
    body = json.dumps(fields).encode()
    head = (
        "POST /translate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
    )
    async with asyncio.timeout(patience):
        reader, writer = await asyncio.open_connection(*address_of(running))
        writer.write(head.encode() + f"{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read()
        writer.close()
    top, _, content = answer.partition(b"\r\n\r\n")
    status, *lines = top.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, content


@contextmanager
def asking_how_it_is(running: Running) -> Iterator[list[float]]:
    """Seconds that /health takes meanwhile, shortest first, asked by a process that is not busy itself."""
    script = f"""
import http.client, sys, threading, time
enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), enough.set()), daemon=True).start()
connection = http.client.HTTPConnection({running.url.removeprefix("http://")!r}, timeout=60)
while not enough.is_set():
    begun = time.perf_counter()
    connection.request("GET", "/health")
    assert connection.getresponse().read()
    print(time.perf_counter() - begun)
    time.sleep(0.05)
"""
    waits: list[float] = []
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True) as process:
        time.sleep(1)
        yield waits
        waits += sorted(map(float, process.communicate()[0].split()))


def slope(values: list[int]) -> float:
    """How much more the last third is than the middle one, as a share."""
    third = len(values) // 3
    middle, last = values[third : 2 * third], values[2 * third :]
    return (sum(last) / len(last)) / (sum(middle) / len(middle)) - 1


def check_spec(url: str, examples: int) -> None:
    from hypothesis import HealthCheck, given, settings

    schema = schemathesis.openapi.from_url(f"{url}/spec")
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        def probe(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url=url, checks=[not_a_server_error])

        probe()


def test_nothing_that_the_description_allows_is_a_mistake_of_ours(running: Running) -> None:
    check_spec(running.url, examples=3)


@pytest.mark.slow
def test_nor_is_anything_else_that_can_be_made_of_it(fresh: Running) -> None:
    check_spec(fresh.url, examples=150)
    assert "Traceback" not in fresh.log.read_text()


@pytest.mark.slow
def test_ten_thousand_at_once_are_all_answered(fresh: Running) -> None:
    draw = random.Random(7)
    texts = ["".join(draw.choices("0123456789", k=draw.randint(3, 9))) for _ in range(10_000)]
    peak = [fresh.memory()]

    async def watch() -> None:
        while True:
            peak.append(fresh.memory())
            await asyncio.sleep(0.1)

    async def work() -> list[tuple[int, dict[str, str], bytes]]:
        watching = asyncio.create_task(watch())
        found = await asyncio.gather(*(post(fresh, FIELDS | {"q": text}) for text in texts))
        watching.cancel()
        return list(found)

    begun = time.perf_counter()
    with asking_how_it_is(fresh) as waits:
        answers = asyncio.run(work())
    counts = Counter(status for status, _, _ in answers)
    print(
        counts,
        f"{time.perf_counter() - begun:.1f} s",
        f"+{(max(peak) - peak[0]) / MEGABYTE:.0f} MB",
        f"/health: {len(waits)} times, {waits[len(waits) // 2]:.3f} s, {waits[-1]:.3f} s at most",
    )
    assert set(counts) <= {200, 429, 503}
    assert counts[200] > 100
    assert all("retry-after" in headers for status, headers, _ in answers if status != 200)
    right = [
        json.loads(answer[2])["translatedText"] == text[::-1]
        for text, answer in zip(texts, answers, strict=True)
        if answer[0] == 200
    ]
    assert sum(right) / len(right) > 0.8  # nobody got somebody else's
    assert max(peak) - peak[0] < 300 * MEGABYTE
    assert waits[len(waits) * 9 // 10] < 0.1


@pytest.mark.slow
def test_twenty_thousand_later_it_is_as_large_as_before(fresh: Running) -> None:
    draw = random.Random(11)
    sizes, files = [], []

    async def one(client: httpx.AsyncClient, count: int) -> None:
        for number in range(count):
            text = "".join(draw.choices("0123456789 ", k=draw.choice((3, 5, 9, 20))))
            answer = await client.post("/translate", json=FIELDS | {"q": f"a{text}"})
            assert answer.status_code == 200
            if number % 25 == 0:
                sizes.append(fresh.memory())
                files.append(len(os.listdir(f"/proc/{fresh.process.pid}/fd")))

    async def work() -> None:
        async with httpx.AsyncClient(
            base_url=fresh.url, timeout=120, limits=httpx.Limits(max_connections=32)
        ) as client:
            await asyncio.gather(*(one(client, 20_000 // 32) for _ in range(32)))

    asyncio.run(work())
    print(
        f"{sizes[0] / MEGABYTE:.0f} -> {sizes[-1] / MEGABYTE:.0f} MB", f"slope {slope(sizes):.3f}", files[0], files[-1]
    )
    assert slope(sizes) < 0.05
    assert max(files[len(files) // 3 :]) <= max(files[: len(files) // 3]) + 5


@pytest.mark.slow
def test_five_hundred_slow_clients_disturb_nobody(fresh: Running) -> None:
    half = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    starts = [half, b"POST /translate HTTP/1.1\r\nHos"]  # in the middle of a body, in the middle of a head

    async def slow(number: int) -> float:
        begun = time.perf_counter()
        reader, writer = await asyncio.open_connection(*address_of(fresh))
        writer.write(starts[number % 2])
        end = asyncio.create_task(reader.read())
        end.add_done_callback(asyncio.Task.exception)  # however it ended
        while not end.done() and time.perf_counter() - begun < 40:
            writer.write(b" " if number % 2 == 0 else b"t")
            await asyncio.sleep(1)
        writer.close()
        return time.perf_counter() - begun

    async def work() -> tuple[list[float], list[float]]:
        slow_ones = [asyncio.create_task(slow(number)) for number in range(500)]
        await asyncio.sleep(2)
        waits = []
        async with httpx.AsyncClient(base_url=fresh.url, timeout=30) as client:
            for _ in range(20):
                begun = time.perf_counter()
                assert (await client.post("/translate", json=FIELDS)).status_code == 200
                waits.append(time.perf_counter() - begun)
                await asyncio.sleep(0.2)
        return waits, [
            each for each in await asyncio.gather(*slow_ones, return_exceptions=True) if isinstance(each, float)
        ]

    waits, ends = asyncio.run(work())
    print(f"a good client waited {max(waits):.3f} s at most; slow ones had {min(ends):.1f} to {max(ends):.1f} s")
    assert max(waits) < 1
    assert max(ends) < 15


@pytest.mark.slow
def test_a_reader_that_does_not_read_is_left(fresh: Running) -> None:
    fields = FIELDS | {"q": ["!" * 9000] * 200}  # nothing to translate, and much to say
    body = json.dumps(fields).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    folder = Path(f"/proc/{fresh.process.pid}/fd")
    files = len(list(folder.iterdir()))
    with connected(fresh) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        begun = time.perf_counter()
        with suppress(ConnectionResetError):  # if it is left already while it still sends
            for _ in range(8):  # more than the kernel keeps for us
                connection.sendall(head.encode() + body)
            assert len(list(folder.iterdir())) > files
        while len(list(folder.iterdir())) > files:
            assert time.perf_counter() - begun < 40
            time.sleep(0.5)


@pytest.mark.slow
def test_a_signal_under_load_loses_nothing_that_was_accepted(reverser: Path, tmp_path: Path) -> None:
    async def ask(running: Running, ends: list[object]) -> None:
        while True:
            try:
                status, _, content = await post(running, FIELDS)
            except ConnectionRefusedError:
                return
            except OSError as error:
                ends.append(error)
                return
            ends.append(status if content.endswith(b"}") else "cut off")

    async def work(running: Running) -> list[object]:
        ends: list[object] = []
        asking = [asyncio.create_task(ask(running, ends)) for _ in range(64)]
        await asyncio.sleep(3)
        running.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*asking)
        return ends

    with serving(reverser, tmp_path / "log", "--beam", "1") as running:
        ends = asyncio.run(work(running))
        assert running.process.wait(SECONDS) == 0
    print(Counter(map(str, ends)))
    assert len(ends) > 64
    assert set(ends) == {200}
