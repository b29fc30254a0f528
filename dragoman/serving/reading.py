"""What was asked, however it was sent: JSON, a form, a query string; read with patience that has an end."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Receive

PATIENCE = 10.0  # seconds for a body, and as much again as it needs at the slowest pace
SLOWEST = 16_384  # bytes a second
MOST_FIELDS = 1_000
LINGERING = 2.0  # seconds a refused body is still read and thrown away: whoever is sending would not see the refusal


class RequestError(Exception):
    """A request that is answered by an error."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    name: str
    content: bytes


Fields = dict[str, Any]


async def read_fields(request: Request, most_bytes: int) -> Fields:
    """The query string's fields and the body's, which win."""
    fields: Fields = dict(_parse_pairs(request.scope["query_string"]))
    if request.method in ("GET", "HEAD"):
        return fields
    body = await read_body(request.receive, request.headers, most_bytes)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return fields | _parse_json(body)
    if kind == "multipart/form-data":
        return fields | await _parse_multipart(request.headers, body, most_bytes)
    if kind == "application/x-www-form-urlencoded":
        return fields | dict(_parse_pairs(body))
    if body:
        raise RequestError(415, f"Content-Type should be application/json or a form, got {kind or 'none'}")
    return fields


async def read_body(receive: Receive, headers: Headers, most_bytes: int) -> bytes:
    """All of it, or a refusal as soon as it is too large or too slow."""
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError(415, f"Content-Encoding {headers['content-encoding']} is not supported")
    too_large = RequestError(
        413, f"Invalid request: body exceeds the limit of {most_bytes} bytes", {"Connection": "close"}
    )
    if int(headers.get("content-length", 0)) > most_bytes:
        raise too_large
    body = bytearray()
    begun = time.monotonic()
    more = True
    while more:
        left = begun + PATIENCE + len(body) / SLOWEST - time.monotonic()
        try:
            message = await asyncio.wait_for(receive(), max(left, 0))
        except TimeoutError:
            raise RequestError(408, "the request came too slowly", {"Connection": "close"}) from None
        if message["type"] == "http.disconnect":
            raise RequestError(499, "the client has left")
        body += message.get("body", b"")
        if len(body) > most_bytes:
            raise too_large
        more = message.get("more_body", False)
    return bytes(body)


async def discard(receive: Receive) -> None:
    """Read on for a moment what nobody wants."""
    try:
        async with asyncio.timeout(LINGERING):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body"):
                pass
    except TimeoutError:
        pass


def _parse_json(body: bytes) -> Fields:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        message = "The browser (or proxy) sent a request that this server could not understand."
        raise RequestError(400, message) from None
    if not isinstance(value, dict):
        raise RequestError(400, "Invalid JSON format")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _parse_pairs(encoded: bytes) -> list[tuple[str, str]]:
    """Fields of a form or a query string, with plain line ends."""
    try:
        pairs = parse_qsl(encoded.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise RequestError(400, "Invalid request: a form should be percent-encoded UTF-8") from None
    return [(name, _plain_lines(value)) for name, value in pairs]


async def _parse_multipart(headers: Headers, body: bytes, most_bytes: int) -> Fields:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        parser = MultiPartParser(headers, stream(), max_files=1, max_fields=MOST_FIELDS, max_part_size=most_bytes)
        parser.spool_max_size = most_bytes + 1  # in memory: that is where the body is
        form = await parser.parse()
    except (MultiPartException, ValueError) as error:
        raise RequestError(400, f"Invalid request: {getattr(error, 'message', 'not a form')}") from None
    fields: Fields = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            fields[name] = Upload(value.filename or "", await value.read())
        else:
            fields[name] = _plain_lines(value)
    return fields


def _plain_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
