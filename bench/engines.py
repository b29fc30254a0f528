"""Decoding on a CPU: the same weights and sentences in every engine, side by side.

A Transformer of the base size with random weights, exported to Marian and to CTranslate2. Every sentence gets a beam
of 4 and exactly 25 pieces, its end included: a translation may have no other length. Ours in torch stands beside
Hugging Face's generate() in the same precision and with batches of the same size, our CTranslate2 engine beside a bare
Translator with the best of its batch sizes. Prints a table, then a JSON line.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch

from dragoman.batch import EOS, Side
from dragoman.data.vocabulary import Vocabulary, train_vocabulary
from dragoman.decoding.engines import Ctranslate2Engine, TorchEngine
from dragoman.decoding.scoring import group_by_length
from dragoman.export import ctranslate2, marian
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import DecodingConfig, Recipe
from dragoman.saved import SavedModel

PIECES = 25
BEAM = 4
BATCH_SIZES = (16, 32, 64, 128)
PEERS_TOKENS = 4096  # source positions times beam that generate() is given at once: as many as our own search takes
PAIRS = (
    ("ours, torch, float32", "Hugging Face, float32"),
    ("ours, torch, bf16", "Hugging Face, bf16"),
    ("ours, ctranslate2, float32", "bare Translator, float32"),
    ("ours, ctranslate2, int8", "bare Translator, int8"),
)
LEARNED = 37_000 - 260  # beside specials and bytes
LETTERS = ((0x3400, 0x4DC0), (0x4E00, 0xA000), (0xAC00, 0xD7A4))
DECODING = DecodingConfig(beam=BEAM, alpha=1.0, extra=0)


def random_model() -> SavedModel:
    """The paper's base model, its 37,000 pieces so many letters and a few pairs: what it says does not matter here."""
    letters = [chr(code) for first, last in LETTERS for code in range(first, last)]
    lines = ["".join(letters[first : first + 40]) for first in range(0, len(letters), 40)]
    vocabulary = Vocabulary(train_vocabulary(lambda: lines, LEARNED, "bpe", byte_fallback=True))
    torch.manual_seed(0)
    config = TransformerConfig()
    model = config.build(len(vocabulary)).eval()
    return SavedModel(Path("random"), model, Recipe(model=config), vocabulary, vocabulary, {})


def sentences(count: int, vocabulary: int) -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(260, vocabulary) for _ in range(PIECES - 1)] for _ in range(count)]


def seconds_of(action: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def ours(engine: TorchEngine | Ctranslate2Engine, sources: Sequence[list[int]]) -> Callable[[], None]:
    def translate() -> None:
        for numbers in group_by_length([PIECES] * len(sources), engine.tokens_at_once // BEAM):
            found = engine.search([sources[n] for n in numbers], DECODING, 1, None)
            assert all(len(each[0].ids) == PIECES - 1 for each in found)

    return translate


def hugging_face(model: Any, sources: Sequence[list[int]]) -> Callable[[], None]:
    def translate() -> None:
        for numbers in group_by_length([PIECES] * len(sources), PEERS_TOKENS // BEAM):
            source = Side.of([[*sources[n], EOS] for n in numbers])
            model.generate(
                input_ids=source.ids,
                attention_mask=source.segments,
                num_beams=BEAM,
                min_new_tokens=PIECES,
                max_new_tokens=PIECES,
                forced_eos_token_id=None,
                do_sample=False,
            )

    return torch.inference_mode()(translate)


def bare(translator: Any, engine: Ctranslate2Engine, sources: Sequence[list[int]], size: int) -> Callable[[], None]:
    pieces = [engine.vocabularies[0].pieces(ids) for ids in sources]

    def translate() -> None:
        translator.translate_batch(
            pieces,
            beam_size=BEAM,
            max_batch_size=size,
            min_decoding_length=PIECES,
            max_decoding_length=PIECES,
        )

    return translate


class Forced:
    """A Translator that is made to write so many pieces, and says that it ended behind them."""

    def __init__(self, translator: Any, end: str) -> None:
        self.translator = translator
        self.end = end

    def translate_batch(self, sources: Any, **settings: Any) -> list[SimpleNamespace]:
        exactly = {"min_decoding_length": PIECES, "max_decoding_length": PIECES}
        found = self.translator.translate_batch(sources, **settings | exactly)
        return [
            SimpleNamespace(
                hypotheses=[[*pieces[: PIECES - 1], self.end] for pieces in each.hypotheses], scores=each.scores
            )
            for each in found
        ]


def measure(saved: SavedModel, sources: list[list[int]], rounds: int) -> dict[str, float]:
    """Target pieces a second of every engine: the best of some rounds, in which all take their turns."""
    from transformers import MarianMTModel

    config: Any = saved.recipe.model
    actions: dict[str, Callable[[], None]] = {}
    with TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        for path in ("marian", "float32", "int8"):
            (folder / path).mkdir()
        marian.write(folder / "marian", saved, config, "float32")
        peer: Any = MarianMTModel.from_pretrained(folder / "marian", dtype=torch.float32).eval()
        for precision in ("float32", "int8"):
            converted = ctranslate2.write(folder / precision, saved, config, precision).engine
            translator = converted.translator
            sizes = {size: seconds_of(bare(translator, converted, sources, size)) for size in BATCH_SIZES}
            best = min(sizes, key=sizes.__getitem__)
            actions[f"bare Translator, {precision}, batches of {best}"] = bare(translator, converted, sources, best)
            own = replace(converted)
            vars(own)["translator"] = Forced(translator, saved.target_vocabulary.pieces([EOS])[0])
            actions[f"ours, ctranslate2, {precision}"] = ours(own, sources)
        halved, half_peer = deepcopy(saved.model).bfloat16(), deepcopy(peer).bfloat16()
        actions |= {
            "Hugging Face, float32": hugging_face(peer, sources),
            "ours, torch, float32": ours(TorchEngine([saved.model]), sources),
            "Hugging Face, bf16": hugging_face(half_peer, sources),
            "ours, torch, bf16": ours(TorchEngine([halved]), sources),
        }
        taken = [{name: seconds_of(action) for name, action in actions.items()} for _ in range(rounds)]
    return {name: len(sources) * PIECES / min(each[name] for each in taken) for name in actions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    saved = random_model()
    found = measure(saved, sentences(options.sentences, len(saved.target_vocabulary)), options.rounds)
    for who, speed in found.items():
        print(f"{who:<45}{speed:>8,.0f} pieces/s")
    ratios = {
        f"{ours} / {peer}": found[next(name for name in found if name.startswith(ours))]
        / found[next(name for name in found if name.startswith(peer))]
        for ours, peer in PAIRS
    }
    for name, ratio in ratios.items():
        print(f"{name:<65}{ratio:.2f}")
    print(json.dumps({"threads": options.threads, "sentences": options.sentences, "speeds": found, "ratios": ratios}))


if __name__ == "__main__":
    main()
