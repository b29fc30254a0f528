"""Who may ask, how much and how often."""

import hashlib
import hmac
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from dragoman.errors import ConfigError

CLIENTS_REMEMBERED = 100_000  # more would be an attack on our memory; who asked longest ago is forgotten first


@dataclass(frozen=True)
class Limits:
    """What one request may ask; sizes stand in the refusals."""

    characters: int = 10_000  # of a text
    texts: int = 1_000  # of a request
    alternatives: int = 10
    body: int = 2 << 20  # bytes
    tokens: int = 200_000  # that may wait, of all requests together
    seconds: float = 30.0  # until an answer
    file_seconds: float = 600.0  # the same for a file


class Keys:
    """API keys from a file, one a line; compared without saying by the time it takes how much was right."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> "Keys":
        """Blank lines and lines that begin with # are no keys."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            raise ConfigError(path, f"cannot be read: {why}") from None
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise ConfigError(path, "holds no key", hint="write one a line, such as what `openssl rand -hex 16` prints")
        return cls(keys)

    def allow(self, key: str) -> bool:
        """Whether it is one of them; all are compared, whichever fits."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, each) for each in self._digests) > 0


class Rate:
    """So many requests a minute for each client: a bucket that fills again while nobody asks."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def seconds_to_wait(self, client: str, now: float | None = None) -> int:
        """Zero lets a request in, and counts it."""
        now = time.monotonic() if now is None else now
        left, then = self._buckets.pop(client, (float(self.per_minute), now))
        left = min(self.per_minute, left + (now - then) * self.per_minute / 60)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > CLIENTS_REMEMBERED:
            self._buckets.popitem(last=False)
        return 0 if left >= 1 else math.ceil((1 - left) * 60 / self.per_minute)


def client_of(address: str) -> str:
    """Whom an address belongs to: of IPv6 a household has a whole network."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(int(parsed) >> 64) if isinstance(parsed, IPv6Address) else str(parsed)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
