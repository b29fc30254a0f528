"""What every request passes on its way in and out: who may enter, what every answer carries, and one line about it."""

import asyncio
import logging
import math
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.errors import DragomanError
from dragoman.serving.batching import OverloadError
from dragoman.serving.limits import Keys, Rate, client_of
from dragoman.serving.metrics import Metrics
from dragoman.serving.reading import Fields, RequestError, discard, read_fields

T = TypeVar("T")

log = logging.getLogger("dragoman.requests")

# Scripts, styles and requests of our own alone, and no script may write HTML; nobody may frame us. Whoever keeps a copy
# asks whether it is still ours.
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


# Of those whose text is to be cut and encoded so many are let through in a turn of the loop: otherwise /health waits
# for all of 10,000 that come at once (docs/LOG.md, 2026-11-19).
CROWD = 16


class Refusal(JSONResponse):
    """An error as LibreTranslate says it."""

    def __init__(self, refused: RequestError) -> None:
        super().__init__({"error": refused.message}, refused.status, refused.headers)

    def render(self, content: Any) -> bytes:
        """What a stranger wrote may hold half a surrogate pair, which no UTF-8 has."""
        return super().render({"error": content["error"].encode("utf-8", "replace").decode()})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever is still sending a body that is too large gets to see this answer."""
        if self.status_code != 413 or self.headers.get("connection") != "close":
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        await discard(receive)
        await send({"type": "http.response.body", "body": b""})


class Guard:
    """Lets requests in: those with a key where keys are wanted, and each client only so often."""

    def __init__(self, keys: Keys | None, rate: Rate | None) -> None:
        self.keys = keys
        self.rate = rate
        self._crowd = asyncio.Semaphore(CROWD)

    def admit(self, request: Request, fields: Fields) -> None:
        """Refuse, or do nothing."""
        client = client_of(request.client.host if request.client else "")
        if self.keys:
            given = fields.get("api_key") or request.headers.get("authorization", "").removeprefix("Bearer ")
            if not given:
                raise RequestError(400, "Please contact the server operator to get an API key")
            if not isinstance(given, str) or not self.keys.allow(given):
                self._count(client)  # nor may keys be guessed as often as one likes
                raise RequestError(403, "Invalid API key")
            client = f"key {given}"
        self._count(client)

    def _count(self, client: str) -> None:
        if self.rate and (seconds := self.rate.seconds_to_wait(client)):
            message = f"Slowdown: {self.rate.per_minute} per 1 minute"
            raise RequestError(429, message, {"Retry-After": str(seconds)})

    def endpoint(
        self, answer: Callable[[Request, Fields], Awaitable[Response]], most_bytes: int, is_open: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """What a route calls: read, admit, answer; whatever goes wrong is told in JSON."""

        async def respond(request: Request) -> Response:
            try:
                fields = await read_fields(request, most_bytes)
                if not is_open:
                    self.admit(request, fields)
                    async with self._crowd:
                        await asyncio.sleep(0)  # whoever else is waiting for an answer
                return await _unless_gone(answer(request, fields), request.receive)
            except Exception as error:
                return Refusal(_refused(error))

        return respond


class Door:
    """Counts, logs and dresses every answer; is told when no more visitors are wanted."""

    def __init__(self, app: ASGIApp, metrics: Metrics, label: Callable[[str], str]) -> None:
        self.app = app
        self.metrics = metrics
        self.label = label
        self.is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, request_id, status = time.perf_counter(), secrets.token_hex(8), 499

        async def dress(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers["X-Request-ID"] = request_id
                if self.is_closing:
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self.app(scope, receive, dress)
        finally:
            path, seconds = self.label(scope["path"]), time.perf_counter() - begun
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            # What was asked is nobody's business: neither text nor query, nor who asked.
            log.info("%s %s %s %.0f ms %s", scope["method"], path, status, 1000 * seconds, request_id)


async def refuse_politely(request: Request, error: Exception) -> Response:
    """What the router itself refuses: no such path, not this method."""
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    words: Mapping[int, str] = {404: "no such path", 405: "this path does not know this method"}
    return Refusal(RequestError(status, words.get(status, "the request cannot be answered"), headers))


def _refused(error: Exception) -> RequestError:
    match error:
        case RequestError():
            return error
        case OverloadError():
            seconds = str(min(60, max(1, math.ceil(error.seconds))))
            return RequestError(429, f"The server is busy: try again in {seconds} seconds", {"Retry-After": seconds})
        case TimeoutError():
            return RequestError(503, "The server is busy: no answer in time", {"Retry-After": "10"})
        case DragomanError():
            return RequestError(400, f"Invalid request: {error}")
    # The message is left out of the log: it might say what somebody wrote.
    trace = "".join(traceback.format_tb(error.__traceback__))
    logging.getLogger("dragoman").error("%s in a request\n%s", type(error).__name__, trace)
    return RequestError(500, "The server made a mistake; its log says more")


async def _unless_gone(work: Awaitable[T], receive: Receive) -> T:
    """Give up as soon as the client has left."""
    task, has_left = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
        raise RequestError(499, "the client has left") from None
    finally:
        watching.cancel()
