"""Requests gathered into batches: one thread owns the models, and everybody else waits for it in a bounded queue.

An order is what one request asks; its items are taken in turn with those of other orders, so that a long document does
not stand before a short question. Orders of the same task share a batch, counted in tokens.
"""

import asyncio
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dragoman.decoding.scoring import FEWEST_TOKENS
from dragoman.decoding.translator import Translator
from dragoman.errors import DragomanError
from dragoman.serving.tasks import Pair, Task

log = logging.getLogger("dragoman")

# After a batch that many asked for together they all ask again at about the same time: waiting so long for them costs
# less than a batch of one.
GATHERING = 0.02  # seconds


class OverloadError(Exception):
    """The queue is full, or too long for what is asked to be answered in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__("overloaded")
        self.seconds = seconds  # after which it is worth trying again


class Item(NamedTuple):
    """A part of an order: its place in the answer, what is asked, and how many tokens that is."""

    number: int
    what: Any
    tokens: int


@dataclass(eq=False)
class Order:
    """What one request asks of one model."""

    task: Task
    waiting: deque[Item]
    answers: list[Any]
    done: "asyncio.Future[list[Any]]"
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.missing = len(self.answers)


@dataclass
class Counts:
    """What there is to be known about the work from outside; whoever measures may set the two functions."""

    tokens: int = 0  # waiting
    orders: int = 0  # waiting
    speed: float | None = None  # tokens a second, lately
    on_batch: Callable[[int, int, float], None] = lambda items, tokens, seconds: None
    on_withdrawal: Callable[[], None] = lambda: None


class Batcher:
    """The queue and the thread."""

    def __init__(self, translators: Mapping[Pair, Translator], most_tokens: int) -> None:
        self.translators = translators
        self.most_tokens = most_tokens
        self.counts = Counts()
        self._lines: dict[Task, deque[Order]] = {}  # the task whose turn is next stands first
        self._changed = threading.Condition()
        self._is_open = False
        self._last_orders = 0
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether somebody works."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin to work, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._thread = threading.Thread(target=self._work, name="models", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more; what is being computed is finished."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        if self._thread:
            self._thread.join()

    async def ask(self, task: Task, items: Sequence[Any], tokens: Sequence[int], seconds: float) -> list[Any]:
        """An answer for each item within so many seconds; being cancelled takes back what has not begun."""
        if not items:
            return []
        parts = deque(Item(*part) for part in zip(range(len(items)), items, tokens, strict=True))
        order = Order(task, parts, [None] * len(items), self._loop.create_future())
        self._enter(order, sum(tokens), seconds)
        try:
            async with asyncio.timeout(seconds):
                return await order.done
        except (TimeoutError, asyncio.CancelledError):
            self.counts.on_withdrawal()
            raise
        finally:
            self._withdraw(order)

    def _enter(self, order: Order, tokens: int, seconds: float) -> None:
        with self._changed:
            # Whoever comes to an empty queue is let in: a limit on one request is not this one.
            if self.counts.tokens and self.counts.tokens + tokens > self.most_tokens:
                raise OverloadError(self._seconds_for(self.counts.tokens))
            # The others take turns with us: none has computed much more than we have when we are done.
            ahead = self._seconds_for(min(self.counts.tokens, tokens * (self.counts.orders + 1)))
            if ahead > seconds:
                raise OverloadError(ahead - seconds)
            self._lines.setdefault(order.task, deque()).append(order)
            self.counts.tokens += tokens
            self.counts.orders += 1
            self._changed.notify()

    def _seconds_for(self, tokens: int) -> float:
        return tokens / self.counts.speed if self.counts.speed else 0.0

    def _withdraw(self, order: Order) -> None:
        with self._changed:
            if order.waiting:
                self.counts.tokens -= sum(item.tokens for item in order.waiting)
                self.counts.orders -= 1
                line = self._lines.get(order.task)
                if line and order in line:
                    line.remove(order)

    def _work(self) -> None:
        while batch := self._gather():
            begun = time.perf_counter()
            task = batch[0][0].task
            results = self._run(task, [item.what for _, item in batch])
            seconds = time.perf_counter() - begun
            tokens = sum(item.tokens for _, item in batch)
            now = tokens / max(seconds, 1e-6)
            self.counts.speed = now if self.counts.speed is None else 0.8 * self.counts.speed + 0.2 * now
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                self._loop.call_soon_threadsafe(self._deliver, batch, results, tokens, seconds)

    def _gather(self) -> list[tuple[Order, Item]]:
        """The next batch, once there is one; none when there is nothing more to do."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._lines or not self._is_open)
                if not self._lines:
                    return []
                if self._last_orders > 1:
                    self._changed.wait_for(self._are_all_back, GATHERING)
                if batch := self._take():
                    self._last_orders = len({id(order) for order, _ in batch})
                    return batch

    def _are_all_back(self) -> bool:
        return self.counts.orders >= self._last_orders or not self._is_open

    def _take(self) -> list[tuple[Order, Item]]:
        """An item of each order of the next task in turn, until a batch is full."""
        task = next(iter(self._lines), None)
        if task is None:
            return []
        line = self._lines.pop(task)
        room = _room(self.translators[task.pair])
        batch: list[tuple[Order, Item]] = []
        while line and (not batch or room >= line[0].waiting[0].tokens):
            order = line.popleft()
            item = order.waiting.popleft()
            batch.append((order, item))
            room -= max(item.tokens, FEWEST_TOKENS)
            self.counts.tokens -= item.tokens
            if order.waiting:
                line.append(order)
            else:
                self.counts.orders -= 1
        if line:
            self._lines[task] = line
        return batch

    def _run(self, task: Task, items: list[Any]) -> Sequence[Any]:
        """Answers, or the error in place of an answer: what is wrong with one item is not the others' fault."""
        try:
            return task.run(self.translators[task.pair], items)
        except Exception as error:
            if len(items) > 1:
                return [self._run(task, [item])[0] for item in items]
            if not isinstance(error, DragomanError):  # which is whoever asked's mistake
                # The message is left out: it might say what somebody wrote.
                trace = "".join(traceback.format_tb(error.__traceback__))
                log.error("%s in the models' thread\n%s", type(error).__name__, trace)
            return [error]

    def _deliver(self, batch: list[tuple[Order, Item]], results: Sequence[Any], tokens: int, seconds: float) -> None:
        self.counts.on_batch(len(batch), tokens, seconds)
        for (order, item), result in zip(batch, results, strict=True):
            if order.done.done():
                continue
            if isinstance(result, Exception):
                order.done.set_exception(result)
                continue
            order.answers[item.number] = result
            order.missing -= 1
            if not order.missing:
                order.done.set_result(order.answers)


def _room(translator: Translator) -> int:
    """Tokens of a batch: as many as the translator would take at once."""
    return translator.engine.tokens_at_once // translator.decoding.beam
