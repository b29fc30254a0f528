"""The server at 64 clients at once, against the engine that it is made of.

The engine translates the sentences one batch after the other, as many at once as a batch of the server holds, in a
process without a server. Each client of the server has one sentence under way and sends the next when it is answered.
Untrained weights of the base model, unless a model is given, write as many pieces as they may. Prints a table, then a
JSON line.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import torch

import dragoman
from dragoman.data.corpora import read_lines
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.decoding.translator import Translator
from dragoman.recipe import read_recipe
from dragoman.saved import build_model, save_model

WARM_UP = 8  # sentences
WORDS = (
    *("the", "a", "dog", "cat", "man", "woman", "house", "tree", "river", "runs", "sleeps", "sees", "finds"),
    *("on", "under", "near", "old", "young", "green", "red", "big", "small"),
)


def make_model(folder: Path, recipe_name: str) -> Path:
    """A model folder with random weights, and a vocabulary of the words below."""
    recipe = read_recipe(recipe_name, ["decoding.extra=5"])
    lines = [" ".join(random.Random(n).choices(WORDS, k=15)) for n in range(2000)]
    proto = train_vocabulary(lambda: lines, 150, "bpe", True)
    torch.manual_seed(0)
    model = build_model(recipe, len(Vocabulary(proto)), len(Vocabulary(proto)))
    save_model(folder / "model", model, recipe, (Vocabulary(proto), Vocabulary(proto)), {"languages": ["en", "de"]})
    return folder / "model"


def some_sentences(count: int) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=draw.randint(8, 24))) for _ in range(count)]


def measure_engine(translator: Translator, sentences: list[str], clients: int) -> float:
    """Sentences a second when as many as there are clients are always at hand."""
    translator.translate(sentences[:WARM_UP])
    begun = time.perf_counter()
    for first in range(0, len(sentences), clients):
        translator.translate(sentences[first : first + clients])
    return len(sentences) / (time.perf_counter() - begun)


async def measure_server(url: str, sentences: list[str], clients: int) -> tuple[float, list[float]]:
    """Sentences a second, and how long each waited."""
    waits: list[float] = []
    waiting = list(reversed(sentences))

    async def ask(client: httpx.AsyncClient) -> None:
        while waiting:
            begun = time.perf_counter()
            answer = await client.post("/translate", json={"q": waiting.pop(), "source": "en", "target": "de"})
            assert answer.status_code == 200, answer.text
            waits.append(time.perf_counter() - begun)

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        begun = time.perf_counter()
        await asyncio.gather(*(ask(client) for _ in range(clients)))
        return len(sentences) / (time.perf_counter() - begun), waits


def serve(model: Path, engine: str, threads: int, log: Path) -> tuple["subprocess.Popen[bytes]", str]:
    command = [sys.executable, "-m", "dragoman.cli", "serve", str(model), "--port", "0", "--threads", str(threads)]
    command += ["--device", "cpu", "--seconds", "600", "--engine", engine]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env=os.environ)
    while not (found := re.search(r"on (http://\S+)", log.read_text())):
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    return process, found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--recipe", default="base")
    parser.add_argument("--engine", default="torch", choices=("torch", "ctranslate2"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--text", type=Path, help="A sentence a line; random words unless given.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sentences = some_sentences(options.sentences)
    if options.text:
        sentences = [line.decode().strip() for line in read_lines(options.text)][: options.sentences]
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or make_model(Path(folder), options.recipe)
        translator = dragoman.load(model, device="cpu", engine=options.engine)
        engine = measure_engine(translator, sentences, options.clients)
        process, url = serve(model, options.engine, options.threads, Path(folder) / "log")
        try:
            asyncio.run(measure_server(url, sentences[:WARM_UP], options.clients))
            server, waits = asyncio.run(measure_server(url, sentences, options.clients))
        finally:
            process.terminate()
            process.wait()
    found: dict[str, Any] = {
        "engine": engine,
        "server": server,
        "share": server / engine,
        "p50": statistics.median(waits),
        "p99": statistics.quantiles(waits, n=100)[98],
    }
    print(f"{'engine':<10}{engine:8.2f} sentences/s")
    print(f"{'server':<10}{server:8.2f} sentences/s  {found['share']:.2f} of it")
    print(f"{'waits':<10}p50 {found['p50']:.2f} s  p99 {found['p99']:.2f} s")
    room = translator.engine.tokens_at_once // translator.decoding.beam
    print(json.dumps({"clients": options.clients, "threads": options.threads, "batch_tokens": room, **found}))


if __name__ == "__main__":
    main()
