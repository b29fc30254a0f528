"""The paths of the server, and what stands behind each."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dragoman.decoding.translator import Translator
from dragoman.serving.batching import Batcher
from dragoman.serving.desk import Desk, Json
from dragoman.serving.door import Door, Guard, refuse_politely
from dragoman.serving.files import FORMATS, MEDIA, Files
from dragoman.serving.languages import Languages, choose_locale, name_of, outward_code
from dragoman.serving.limits import Keys, Limits, Rate
from dragoman.serving.metrics import Metrics
from dragoman.serving.reading import Fields, RequestError
from dragoman.serving.spec import describe, render_docs
from dragoman.serving.tasks import Pair

# The page that people see at `/`: index.html, and what it links to under /page/.
PAGE = Path(__file__).parent / "page"
FRONTEND_TIMEOUT = 500  # milliseconds after the last key that LibreTranslate's page waits before it asks

Answer = Callable[[Request, Fields], Awaitable[Response]]


class Way(NamedTuple):
    """A path, its method, what answers it, and whether it does so without a key."""

    path: str
    method: str
    answer: Answer
    is_open: bool = False


class Server:
    """One server: its models, its limits, and an application that uvicorn can run."""

    def __init__(
        self,
        translators: Mapping[Pair, Translator],
        limits: Limits,
        keys: Keys | None = None,
        rate: Rate | None = None,
        origins: Sequence[str] = (),
    ) -> None:
        self.translators = translators
        self.limits = limits
        self.keys = keys
        self.batcher = Batcher(translators, limits.tokens)
        self.languages = Languages(list(translators))
        self.metrics = Metrics(self.batcher)
        self.files = Files()
        self.desk = Desk(self.batcher, self.languages, limits, self.metrics, self.files)
        self.spec = describe(self.languages, limits, keys is not None)
        paths, guard = self._paths(), Guard(keys, rate)
        routes = [
            Route(each.path, guard.endpoint(each.answer, limits.body, each.is_open), methods=[each.method])
            for each in paths
        ]
        known = {each.path for each in paths}
        starlette = Starlette(
            routes=[*routes, Mount("/page", StaticFiles(directory=PAGE))],
            middleware=[_cors(origins)] if origins else [],
            exception_handlers={HTTPException: refuse_politely},
            lifespan=self._lifespan,
        )
        starlette.router.redirect_slashes = False
        self.door = Door(starlette, self.metrics, lambda path: _label(path, known))

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.batcher.start()
        yield
        self.batcher.stop()

    def _paths(self) -> list[Way]:
        return [
            Way("/translate", "POST", self._translate),
            Way("/detect", "POST", self._detect),
            Way("/translate_file", "POST", self._translate_file),
            Way("/suggest", "POST", self._suggest),
            Way("/score", "POST", self._score),
            Way("/attention", "POST", self._attention),
            Way("/inside", "POST", self._inside),
            Way("/positions", "POST", self._positions),
            Way("/metrics", "GET", self._metrics),
            Way("/download_file/{name}", "GET", self._download_file, is_open=True),  # nobody guesses the name
            Way("/languages", "GET", self._languages, is_open=True),
            Way("/frontend/settings", "GET", self._settings, is_open=True),
            Way("/health", "GET", self._health, is_open=True),
            Way("/health/live", "GET", self._live, is_open=True),
            Way("/health/ready", "GET", self._ready, is_open=True),
            Way("/spec", "GET", self._spec, is_open=True),
            Way("/docs", "GET", self._docs, is_open=True),
            Way("/", "GET", self._page, is_open=True),
        ]

    async def _translate(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.translate(fields))

    async def _detect(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.detect(fields))

    async def _translate_file(self, request: Request, fields: Fields) -> Response:
        name = await self.desk.translate_file(fields)
        return _json({"translatedFileUrl": f"{request.base_url}download_file/{name}"})

    async def _download_file(self, request: Request, fields: Fields) -> Response:
        kept = self.files.find(request.path_params["name"])
        if kept is None:
            raise RequestError(404, "no such file, or no longer")
        headers = {"Content-Disposition": f'attachment; filename="translation{kept.suffix}"'}
        return Response(kept.content, media_type=MEDIA[kept.suffix], headers=headers)

    async def _suggest(self, request: Request, fields: Fields) -> Response:
        raise RequestError(403, "Suggestions are disabled on this server.")

    async def _score(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.score(fields))

    async def _attention(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.attention(fields))

    async def _inside(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.inside(fields))

    async def _positions(self, request: Request, fields: Fields) -> Response:
        return _json(await self.desk.positions(fields))

    async def _metrics(self, request: Request, fields: Fields) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _languages(self, request: Request, fields: Fields) -> Response:
        accepted = request.headers.get("accept-language", "").split(",", 10)[:10]
        locale = choose_locale([fields.get("lang", ""), *(each.partition(";")[0] for each in accepted)])
        return _json(
            [
                {
                    "code": outward_code(code),
                    "name": name_of(code, locale),
                    "targets": [outward_code(target) for target in self.languages.targets(code)],
                }
                for code in self.languages.codes
            ]
        )

    async def _settings(self, request: Request, fields: Fields) -> Response:
        target = next(iter(self.translators)).target
        english = choose_locale(["en"])
        return _json(
            {
                "apiKeys": self.keys is not None,
                "alternatives": self.limits.alternatives,
                "charLimit": self.limits.characters,
                "filesTranslation": True,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "keyRequired": self.keys is not None,
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": outward_code(target), "name": name_of(target, english)},
                },
                "suggestions": False,
                "supportedFilesFormat": list(FORMATS),
            }
        )

    async def _health(self, request: Request, fields: Fields) -> Response:
        return _json({"status": "ok", "models": [_about(*each) for each in self.translators.items()]})

    async def _live(self, request: Request, fields: Fields) -> Response:
        return _json({"status": "ok"}) if self.batcher.is_alive else _json({"status": "the models' thread died"}, 503)

    async def _ready(self, request: Request, fields: Fields) -> Response:
        if self.door.is_closing:
            return _json({"status": "shutting down"}, 503)
        return await self._live(request, fields)

    async def _spec(self, request: Request, fields: Fields) -> Response:
        return _json(self.spec)

    async def _docs(self, request: Request, fields: Fields) -> Response:
        return HTMLResponse(render_docs(self.spec))

    async def _page(self, request: Request, fields: Fields) -> Response:
        return FileResponse(PAGE / "index.html")


def _json(content: Any, status: int = 200) -> Response:
    return JSONResponse(content, status)


def _about(pair: Pair, translator: Translator) -> Json:
    return {
        "source": outward_code(pair.source),
        "target": outward_code(pair.target),
        "engine": translator.engine.name,
        "precision": translator.engine.precision,
        "device": translator.models[0].device.type,
        "beam": translator.decoding.beam,
    }


def _label(path: str, known: set[str]) -> str:
    """What the log and the metrics call a path: strangers may make up any number of others."""
    if path.startswith("/download_file/"):
        return "/download_file/{name}"
    return path if path in known else "/page" if path.startswith("/page/") else "other"


def _cors(origins: Sequence[str]) -> Middleware:
    headers = ["Authorization", "Content-Type"]
    return Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=headers, max_age=1728000
    )
