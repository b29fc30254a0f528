"""The server's process: its port, its connections, and how it ends."""

import logging
import os
import resource
import socket
import time
from asyncio import TimerHandle, Transport
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dragoman.errors import ConfigError
from dragoman.serving.app import Server

HEAD_SECONDS, HEAD_BYTES = 10.0, 64 << 10  # for everything before a body
STUCK_SECONDS = 10.0  # in which whoever reads an answer must have read some of it
# After a signal the port stays open for a moment: whoever is on the way is answered, whoever asks is told to leave.
LEAVING_SECONDS = 1.0
BACKLOG = 4096

requests_log = logging.getLogger("dragoman.requests")


class Connection(HttpToolsProtocol):
    """uvicorn's, which by itself would wait for ever for a head to end and for an answer to be read."""

    _head_timer: TimerHandle | None = None
    _stuck_timer: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Somebody has come and should say what they want."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        self._stop(self._head_timer)
        self._stop(self._stuck_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a head, or of a body, which is counted elsewhere."""
        if self.cycle is None or self.cycle.response_complete:
            if self._head_timer is None:
                self._await_head()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer and self._head_bytes > HEAD_BYTES:  # and still no end to it
            self.transport.close()

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._stop(self._head_timer)
        self._head_timer = None
        self._head_bytes = 0
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is refused in JSON too."""
        body = b'{"error":"' + msg.encode() + b'"}'
        head = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.transport.close()

    def pause_writing(self) -> None:
        """An answer waits for its reader."""
        super().pause_writing()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It is read."""
        self._stop(self._stuck_timer)
        super().resume_writing()

    def shutdown(self) -> None:
        """Who has asked is answered; who may just be asking has a moment to be heard."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LEAVING_SECONDS / 2, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        super().shutdown()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _watch_reader(self, before: int) -> None:
        self._stuck_timer = self.loop.call_later(STUCK_SECONDS, self._check_reader, before)

    def _check_reader(self, before: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size >= before:
            self.transport.abort()
        else:
            self._watch_reader(size)

    def _stop(self, timer: TimerHandle | None) -> None:
        if timer:
            timer.cancel()


class Process(uvicorn.Server):
    """uvicorn's, which by itself would close its port before anybody knows, and die of the signal it was sent."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server
        self._closes_at: float | None = None
        self.signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the port, and say so once whoever reads it can come."""
        await super().startup(sockets)
        pairs = ", ".join(f"{pair.source}-{pair.target}" for pair in self._server.translators)
        for opened in sockets or []:
            address, number = opened.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            requests_log.info("serving %s on http://%s:%s", pairs, shown, number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal: finish what was begun. The second: stop."""
        if self.signal is not None:
            os._exit(128 + sig)
        self.signal = sig
        self._server.door.is_closing = True
        self._closes_at = time.monotonic() + LEAVING_SECONDS

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to go; asked ten times a second."""
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)


def bind(host: str, port: int) -> socket.socket:
    """A socket that has its address and does not listen yet."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError("--host", f"no such address, got {host}: {error.strerror}") from None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        hint = "choose another --port; 0 takes one that is free"
        raise ConfigError(
            "--port", f"{host}:{port} cannot be had: {(error.strerror or '').lower()}", hint=hint
        ) from None
    return bound


def run(server: Server, bound: socket.socket, proxies: list[str]) -> int | None:
    """Serve until a signal, which is returned."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection each: the soft limit is for old programs
    config = uvicorn.Config(
        server.door,
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(server.limits.seconds) + 5,
    )
    process = Process(config, server)
    process.run([bound])
    return process.signal
