"""Decoding in slow motion: what is there so far, the five best next pieces, the source piece looked at most."""

from collections.abc import Iterator

import torch

from dragoman.batch import BOS, EOS, Side
from dragoman.decoding.search import NEVER, Ensemble, output_limits
from dragoman.decoding.translator import Translator

SHOWN = 5


@torch.inference_mode()
def show_steps(translator: Translator, text: str) -> Iterator[str]:
    """One line a step of greedy decoding, until the end token; nothing for a blank text."""
    vocabulary = translator.target_vocabulary
    ids = translator.encode([text])[0][: translator.longest] if text.strip() else []
    written: list[int] = []
    if not ids:
        return
    source = Side.of([[*ids, EOS]]).to(translator.models[0].device)
    ensemble = Ensemble.start(translator.models, source, 1)
    limit = int(output_limits(translator.models, source, translator.decoding.extra)[0])
    lines = []
    while not written or written[-1] != EOS:
        last = torch.tensor([written[-1] if written else BOS], device=source.ids.device)
        probabilities = ensemble.step(last)[0].exp()
        probabilities[NEVER] = 0.0
        if len(written) + 1 == limit:
            probabilities[torch.arange(len(probabilities)) != EOS] = 0.0
        best = probabilities.topk(SHOWN)
        pieces = vocabulary.pieces(best.indices.tolist())
        shown = "  ".join(f"{piece} {share:.3f}" for piece, share in zip(pieces, best.values.tolist(), strict=True))
        lines.append(f"{len(written) + 1:>3}  {vocabulary.decode([written])[0]!r}  ->  {shown}")
        written.append(int(best.indices[0]))
    # One forced pass tells what each step looked at most, by the last layer's heads together.
    maps = translator.attention_of_ids(ids, written[:-1])
    if not len(maps.cross):  # a model that looks at nothing: what it knows of the source is in its state
        yield from lines
        return
    for line, place in zip(lines, maps.cross[-1].mean(0).argmax(-1).tolist(), strict=True):
        yield f"{line}  (looking at {maps.source_pieces[place]})"
