"""What can be counted without knowing who asked what, for Prometheus: no label is anybody's."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dragoman.serving.batching import Batcher

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOGETHER = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The counters of one server."""

    def __init__(self, batcher: Batcher) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("dragoman_requests", "Requests answered.", ["path", "status"], registry=self._registry)
        self.seconds = Histogram(
            "dragoman_request_seconds", "Until the answer.", ["path"], buckets=SECONDS, registry=self._registry
        )
        self.warnings = Counter("dragoman_warnings", "Translations that were mended.", registry=self._registry)
        self._cancelled = Counter("dragoman_cancelled", "Orders taken back or out of time.", registry=self._registry)
        self._tokens = Counter("dragoman_tokens", "Source tokens computed.", registry=self._registry)
        self._batch = Histogram("dragoman_batch_sentences", "Together.", buckets=TOGETHER, registry=self._registry)
        self._busy = Counter("dragoman_busy_seconds", "The models' thread at work.", registry=self._registry)
        waiting = Gauge("dragoman_waiting_tokens", "In the queue.", registry=self._registry)
        waiting.set_function(lambda: batcher.counts.tokens)
        orders = Gauge("dragoman_waiting_orders", "In the queue.", registry=self._registry)
        orders.set_function(lambda: batcher.counts.orders)
        batcher.counts.on_batch = self._count_batch
        batcher.counts.on_withdrawal = self._cancelled.inc

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _count_batch(self, sentences: int, tokens: int, seconds: float) -> None:
        self._batch.observe(sentences)
        self._tokens.inc(tokens)
        self._busy.inc(seconds)
