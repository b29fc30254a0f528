"""Decoding: a trained model of dragoman's on a test set, against its own plain path and against MarianMT's generate().

The plain path asks after every step who is done and takes small batches; both must write the same lines. MarianMT has
the same shape and random weights, so it is made to write as many pieces as the longest of our translations in each of
its batches. Prints each as it comes, then a JSON line; with --profile the kernels of our search too.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from training import show_profile

import dragoman
from dragoman.batch import EOS, Side
from dragoman.data.corpora import read_text_pairs
from dragoman.decoding import engines, search
from dragoman.decoding.scoring import group_by_length
from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import plain_bleu

WARM_UP = 200  # lines
PEERS_SENTENCES = 128  # at once


def seconds_of(action: Callable[[], Any]) -> tuple[float, Any]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    begun = time.perf_counter()
    result = action()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun, result


def say(who: str, values: dict[str, float]) -> None:
    print(f"{who:<18}" + "  ".join(f"{name} {value:,.3f}" for name, value in values.items()), flush=True)


def measure(
    model: Translator, sources: list[str], references: list[str], plain: bool
) -> tuple[dict[str, float], list[str]]:
    with ExitStack() as patches:
        if plain:
            patches.enter_context(patch.object(search, "STEPS_BETWEEN_QUESTIONS", {}))
            patches.enter_context(patch.object(engines, "TOKENS_AT_ONCE", {"cpu": 4096, "cuda": 16384}))
        first_seconds, _ = seconds_of(lambda: model.translate(sources[:WARM_UP]))
        seconds, answers = seconds_of(lambda: model.translate(sources))
    texts = [answer.text for answer in answers]
    tokens = sum(map(len, model.target_vocabulary.encode(texts)))
    found = {"seconds": seconds, "tokens_per_second": tokens / seconds, "bleu": plain_bleu(texts, references)}
    if model.models[0].device.type == "cuda":
        found["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.reset_peak_memory_stats()
    return found | {"warm_up_seconds": first_seconds}, texts


def measure_marian(model: Translator, sources: list[str], texts: list[str]) -> float:
    """Seconds that generate() takes with the same beam, shape and numbers of pieces."""
    from transformers import MarianConfig, MarianMTModel

    own: Any = model.models[0]
    layer, device = own.decoder[0], own.device
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (
        ("layers", len(own.decoder)), ("attention_heads", layer.self_attention.heads),
        ("ffn_dim", layer.feed_forward.expand.out_features))}  # fmt: skip
    config = MarianConfig(
        vocab_size=len(model.target_vocabulary), d_model=own.width, max_position_embeddings=1024, pad_token_id=0,
        eos_token_id=EOS, bos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None, scale_embedding=True,
        activation_function="relu", **sizes,
    )  # fmt: skip
    peer = MarianMTModel(config).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32).eval()
    source_ids, target_ids = model.encode(sources), model.target_vocabulary.encode(texts)
    groups = list(group_by_length([len(ids) for ids in source_ids], 1 << 30))
    order = [number for group in groups for number in group]
    batches = [order[first : first + PEERS_SENTENCES] for first in range(0, len(order), PEERS_SENTENCES)]

    def translate(numbers: list[int]) -> None:
        source = Side.of([[*source_ids[number], EOS] for number in numbers]).to(device)
        pieces = max(len(target_ids[number]) for number in numbers) + 1
        peer.generate(
            input_ids=source.ids, attention_mask=source.segments, num_beams=model.decoding.beam,
            min_new_tokens=pieces, max_new_tokens=pieces, length_penalty=model.decoding.alpha, do_sample=False,
        )  # fmt: skip

    with torch.inference_mode():
        translate(batches[0])
        return seconds_of(lambda: [translate(batch) for batch in batches])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if not (options.model and options.source and options.target):
        print("a model, --source and --target are needed: nothing to measure without them")
        return
    sources, references = read_text_pairs(options.source, options.target)
    torch.backends.cuda.matmul.allow_tf32 = False
    found: dict[str, dict[str, float]] = {}
    for precision in ("float32", "bf16"):
        model = dragoman.load(options.model, decoding={"precision": precision})
        found[precision], texts = measure(model, sources, references, plain=False)
        say(precision, found[precision])
        if options.profile:
            show_profile(partial(model.translate, sources), 1)
        found[f"{precision}, plain"], expected = measure(model, sources, references, plain=True)
        same = sum(one == other for one, other in zip(texts, expected, strict=True))
        found[f"{precision}, plain"]["same_lines"] = same / len(texts)
        say(f"{precision}, plain", found[f"{precision}, plain"])
    if not options.no_peer:
        found["MarianMT"] = {"seconds": measure_marian(model, sources, texts)}
        say("MarianMT", found["MarianMT"])
    print(json.dumps({"sentences": len(sources), **found}))


if __name__ == "__main__":
    main()
