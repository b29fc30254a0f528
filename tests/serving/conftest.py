"""What tests of the server share: one real process of it, and servers in this process where settings differ."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import pytest

from dragoman.decoding.translator import Translator
from dragoman.serving.app import Server
from dragoman.serving.limits import Limits
from dragoman.serving.tasks import Pair

SECONDS = 60  # more than anything needs on a busy machine
EN_DE = Pair("en", "de")

T = TypeVar("T")


class Running(NamedTuple):
    """A server process."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def memory(self) -> int:
        """Bytes it occupies."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(model: Path | str | None, log: Path, *words: str) -> Iterator[Running]:
    command = [sys.executable, "-m", "dragoman.cli", "serve", *([str(model)] if model else []), "--port", "0"]
    command += words if model is None else ["--engine", "torch", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr, env=environment) as process:
        try:
            deadline = time.monotonic() + SECONDS
            while not (found := re.search(r"serving .+ on (http://\S+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, "the server does not begin"
                time.sleep(0.05)
            yield Running(process, found[1], log)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def running(reverser: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server as a user starts it, shared by all tests that leave it as it was."""
    with serving(reverser, tmp_path_factory.mktemp("serve") / "log") as process:
        yield process


@pytest.fixture(scope="session")
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=SECONDS) as client:
        yield client


@asynccontextmanager
async def inside(server: Server, address: str = "192.0.2.7") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that runs in this process."""
    transport = httpx.ASGITransport(server.door, client=(address, 4711))
    server.batcher.start()
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=SECONDS) as client:
            yield client
    finally:
        server.batcher.stop()


@pytest.fixture
def new_server(translator: Translator) -> Callable[..., Server]:
    def new_server(limits: Limits = Limits(), **settings: Any) -> Server:  # noqa: B008
        return Server({EN_DE: translator}, limits, **settings)

    return new_server


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, SECONDS))
