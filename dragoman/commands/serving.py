"""Commands for others: serve."""

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.options import (
    Alpha,
    Beam,
    Device,
    Engine,
    Precision,
    Threads,
    choose_place,
    load_together,
)
from dragoman.errors import ConfigError, ModelError
from dragoman.everyday.find import everyday_models

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator
    from dragoman.serving.tasks import Pair

NAMED = re.compile(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)=(.+)")
Models = Annotated[
    list[str] | None,
    typer.Argument(
        help="Model or run folders, a language pair each; en:de=FOLDER says which. Small ones come along.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets everybody in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes one that is free.")]
KeyFile = Annotated[Path | None, typer.Option("--keys", help="API keys, one a line; without, none is asked for.")]
PerMinute = Annotated[int | None, typer.Option("--rate", min=1, help="Requests a minute that a client may make.")]
Origins = Annotated[
    list[str] | None, typer.Option("--cors", help="An origin whose pages may ask, such as https://a.org.")
]
Proxies = Annotated[list[str] | None, typer.Option("--proxy", help="A proxy that may say who the client is.")]


def serve(
    models: Models = None,
    host: Host = "127.0.0.1",
    port: Port = 5000,
    keys: KeyFile = None,
    rate: PerMinute = None,
    cors: Origins = None,
    proxy: Proxies = None,
    characters: Annotated[int, typer.Option(min=1, help="Of one text, at most.")] = 10_000,
    texts: Annotated[int, typer.Option(min=1, help="In one request, at most.")] = 1_000,
    alternatives: Annotated[int, typer.Option(min=0, max=100, help="Beside the best, at most.")] = 10,
    megabytes: Annotated[float, typer.Option(min=0.001, help="Of one request, at most.")] = 2.0,
    queue: Annotated[int, typer.Option(min=1, help="Pieces that may wait; more are told to come back.")] = 200_000,
    seconds: Annotated[float, typer.Option(min=0.01, help="Until an answer, or none is given.")] = 30.0,
    beam: Beam = None,
    alpha: Alpha = None,
    precision: Precision = None,
    engine: Engine = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate for others over HTTP, as LibreTranslate does: its clients need not know the difference."""
    try:
        from dragoman.serving.app import Server
        from dragoman.serving.http import bind, run
        from dragoman.serving.limits import Keys, Limits, Rate
    except ModuleNotFoundError as error:
        raise ConfigError(
            "serve", f"needs {str(error.name).partition('.')[0]}", hint="pip install 'dragoman[serve]'"
        ) from None
    limits = Limits(characters, texts, alternatives, int(megabytes * (1 << 20)), queue, seconds)
    known = Keys.read(keys) if keys else None
    # Bound first, so that a port in use is told at once; it is opened when every model has been loaded and has spoken.
    with bind(host, port) as bound:
        place = choose_place(device, threads)
        translators: dict[Pair, Translator] = {}
        for word in models or map(str, everyday_models().values()):
            path, pair = find_pair(word)
            if pair in translators:
                raise ConfigError(word, f"a model from {pair.source} into {pair.target} has been given already")
            given = {"beam": beam, "alpha": alpha, "precision": precision}
            translators[pair] = load_together([path], place, None, given, engine)
            if not translators[pair].models:
                raise ConfigError(word, "a converted copy shows no attention", hint="serve the model it was made of")
            translators[pair].translate(["1"])
        _begin_to_log()
        server = Server(translators, limits, known, Rate(rate) if rate else None, cors or [])
        if run(server, bound, proxy or []) == 2:
            raise KeyboardInterrupt


def find_pair(word: str) -> tuple[Path, "Pair"]:
    """A model folder and its languages: those that are said, else those of the model's card."""
    from dragoman.saved import find_model, read_card, read_recipe_file
    from dragoman.serving.languages import normalise_code
    from dragoman.serving.tasks import Pair

    named = NAMED.fullmatch(word)
    folder = find_model(Path(named[3] if named else word))
    card = read_card(folder)
    if read_recipe_file(folder).data.plain:
        raise ConfigError(word, "this model learned from plain text: it goes on writing and does not translate")
    source, target = (named[1], named[2]) if named else card.get("languages", (None, None))
    if not source or not target:
        raise ModelError(word, "its card does not say its languages", hint=f"say them, such as en:de={word}")
    return folder, Pair(normalise_code(source), normalise_code(target))


def _begin_to_log() -> None:
    """A line a request on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    requests = logging.getLogger("dragoman.requests")
    requests.addHandler(handler)
    requests.setLevel(logging.INFO)
    requests.propagate = False
