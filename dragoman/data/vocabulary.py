"""Text becomes pieces and back, without loss: decode(encode(x)) == x for every line (SentencePiece, sections 3.4, 5.1).

Ids: 0 pad, 1 unk, 2 bos, 3 eos, then 256 byte pieces where byte fallback is on, then the learned pieces.
"""

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Literal

import torch
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from dragoman.batch import BOS, EOS, PAD, UNK
from dragoman.errors import DataError

SPECIALS = 4
BYTES = 256
# SentencePiece writes a blank so, and would read this character itself as a blank.
BLANK = "\u2581"
# Lines are split at characters that will not be pieces; SentencePiece's own sign for them serves.
UNLEARNED = "\u2585"
# Said behind a model, it wins over what the model says: normalizer_spec { add_dummy_prefix: false }, as protobuf merges
# messages. SentencePiece's own way to say so came with 0.2.0 and went with 0.2.3.
WITHOUT_PREFIX = b"\x1a\x02\x18\x00"
# Beyond this pieces hardly change, but memory grows; every k-th line is taken, so that the result is always the same.
LINES_AT_MOST = 2_000_000

Algorithm = Literal["bpe", "unigram"]


class Vocabulary:
    """A trained SentencePiece model."""

    def __init__(self, proto: bytes, nfkc: bool = False) -> None:
        self.proto = proto
        self.nfkc = nfkc
        self._processor = SentencePieceProcessor(model_proto=proto)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without BOS and EOS."""
        # Half a surrogate pair is no text, and SentencePiece would raise on it.
        texts = [text.encode("utf-8", "replace").decode() for text in texts]
        texts = list(map(normalise, texts)) if self.nfkc else texts
        ids: list[list[int]] = self._processor.encode(texts, num_threads=torch.get_num_threads())
        for number, text in enumerate(texts):
            if BLANK in text:
                ids[number] = self._encode_blanks(text)
        return ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids; the specials have none."""
        return [str(self._processor.decode([id for id in each if id > EOS])) for each in ids]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces as SentencePiece writes them."""
        return [str(self._processor.id_to_piece(int(id))) for id in ids]

    def _encode_blanks(self, text: str) -> list[int]:
        # The character that stands for a blank is spelled in bytes; what follows it must not gain a blank in front.
        first, *rest = text.split(BLANK)
        ids = list(self._processor.encode(first))
        spelled = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in BLANK.encode()]
        for part in rest:
            ids += spelled + list(self._without_prefix.encode(part))
        return ids

    @cached_property
    def _without_prefix(self) -> SentencePieceProcessor:
        return SentencePieceProcessor(model_proto=self.proto + WITHOUT_PREFIX)


def normalise(text: str) -> str:
    """NFKC, which a recipe may ask for on the source side alone."""
    return unicodedata.normalize("NFKC", text)


def train_vocabulary(lines: Callable[[], Iterable[str]], size: int, algorithm: Algorithm, byte_fallback: bool) -> bytes:
    """Learn `size` pieces from the lines, which are read twice; specials and byte pieces come on top."""
    extra = SPECIALS + (BYTES if byte_fallback else 0)
    counts, total = _count_characters(lines())
    # Every character is a piece, and one piece is the blank: the rarest beyond that are left to the bytes.
    rare = {ord(character): UNLEARNED for character, _ in counts.most_common()[size - 1 :]}
    chosen = islice(lines(), 0, None, -(-total // LINES_AT_MOST) or 1)
    readable = (part for line in chosen for part in line.translate(rare).split(UNLEARNED))
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(readable),
            model_writer=model,
            vocab_size=size + extra,
            model_type=algorithm,
            byte_fallback=byte_fallback,
            # Text is not rewritten.
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_digits=True,
            character_coverage=1.0,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=1 << 16,
            # Written into the model: with the number of the machine the same text would hash differently.
            num_threads=16,
            minloglevel=2,
        )
    except RuntimeError as error:
        largest = re.search(r"value <= (\d+)", str(error))
        if largest is None:
            raise DataError("vocabulary", f"SentencePiece could not learn {size} pieces: {error}") from None
        allowed = int(largest[1]) - extra
        raise DataError(
            "vocabulary",
            f"the corpus allows at most {allowed} pieces, got {size}",
            hint=f"use --vocabulary {allowed} or less, or more text",
        ) from None
    return model.getvalue()


def _count_characters(lines: Iterable[str]) -> tuple[Counter[str], int]:
    """How often each character but the blank occurs, and how many lines there are."""
    counts: Counter[str] = Counter()
    total = 0
    for line in lines:
        counts.update(line)
        total += 1
    counts.pop(" ", None)
    return counts, total
