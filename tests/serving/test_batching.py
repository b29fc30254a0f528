"""The queue: together where it helps, in turn where it is fair, and nothing done that nobody waits for."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from dragoman.decoding.translator import Translator
from dragoman.serving.batching import Batcher, OverloadError
from dragoman.serving.tasks import Answer, Pair, Translate
from tests.serving.conftest import EN_DE, run


@dataclass(frozen=True, eq=False)
class Watched:
    """Translates; keeps what it was given together, waits until it may go on, and fails where a text says so."""

    pair: Pair = EN_DE
    batches: list[list[str]] = field(default_factory=list)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def run(self, translator: Translator, items: Sequence[str]) -> list[Answer]:
        self.batches.append(list(items))
        assert self.may_go_on.wait(10)
        if any(text == "poison" for text in items):
            raise ValueError(items)
        return Translate(self.pair, 1).run(translator, items)


async def until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.001)


@pytest.fixture
def batcher(translator: Translator) -> Batcher:
    return Batcher({EN_DE: translator}, most_tokens=1000)


def texts_of(answers: Sequence[Answer]) -> list[str]:
    return [answer.texts[0] for answer in answers]


def test_orders_share_a_batch_and_each_gets_its_own(
    batcher: Batcher, translator: Translator, numbers: list[str]
) -> None:
    expected = [each.text for each in translator.translate(numbers[:13])]
    watched = Watched()

    async def work() -> None:
        batcher.start()
        first = asyncio.create_task(batcher.ask(watched, numbers[:1], [5], 30.0))
        await until(lambda: watched.batches)
        others = [asyncio.create_task(batcher.ask(watched, numbers[n : n + 3], [5] * 3, 30.0)) for n in (1, 4, 7, 10)]
        await until(lambda: batcher.counts.orders == 4)
        watched.may_go_on.set()
        answers = [answer for answer in await asyncio.gather(first, *others) for answer in answer]
        assert texts_of(answers) == expected
        assert batcher.counts.tokens == batcher.counts.orders == 0

    run(work())
    batcher.stop()
    assert watched.batches == [numbers[:1], [numbers[n + k] for k in range(3) for n in (1, 4, 7, 10)]]


def test_a_long_document_does_not_stand_before_a_short_question(batcher: Batcher, numbers: list[str]) -> None:
    watched = Watched()

    async def work() -> None:
        batcher.start()
        document = [*numbers, *numbers]  # far more than a batch holds
        slow = asyncio.create_task(batcher.ask(watched, document, [4] * len(document), 30.0))
        await until(lambda: watched.batches)
        quick = asyncio.create_task(batcher.ask(watched, ["12345"], [6], 30.0))
        await until(lambda: batcher.counts.orders == 2)
        watched.may_go_on.set()
        await quick
        assert not slow.done()
        await slow

    run(work())
    batcher.stop()
    assert "12345" in watched.batches[1]


def test_a_full_queue_refuses_and_says_when_to_come_back(batcher: Batcher) -> None:
    watched = Watched()

    async def work() -> None:
        batcher.start()
        running = asyncio.create_task(batcher.ask(watched, ["1"], [900], 30.0))
        await until(lambda: watched.batches)
        waiting = asyncio.create_task(batcher.ask(watched, ["2"], [900], 30.0))
        await until(lambda: batcher.counts.orders == 1)
        with pytest.raises(OverloadError):
            await batcher.ask(watched, ["3"], [101], 30.0)
        batcher.counts.speed = 1.0
        with pytest.raises(OverloadError) as error:
            await batcher.ask(watched, ["3"], [95], 30.0)  # there would be room, but no answer in time
        assert error.value.seconds == 2 * 95 - 30
        short = asyncio.create_task(batcher.ask(watched, ["4"], [5], 30.0))  # which will have its turn soon
        await until(lambda: batcher.counts.orders == 2)
        watched.may_go_on.set()
        await asyncio.gather(running, waiting, short)

    run(work())
    batcher.stop()
    assert watched.batches == [["1"], ["2", "4"]]


@pytest.mark.parametrize("how", ["cancelled", "too late"])
def test_what_nobody_waits_for_is_not_computed(batcher: Batcher, how: str) -> None:
    watched = Watched()
    withdrawn = []
    batcher.counts.on_withdrawal = lambda: withdrawn.append(1)

    async def work() -> None:
        batcher.start()
        running = asyncio.create_task(batcher.ask(watched, ["1"], [5], 30.0))
        await until(lambda: watched.batches)
        seconds = 0.05 if how == "too late" else 30.0
        leaving = [asyncio.create_task(batcher.ask(watched, ["2", "3"], [5, 5], seconds)) for _ in range(90)]
        staying = asyncio.create_task(batcher.ask(watched, ["4"], [5], 30.0))
        await until(lambda: batcher.counts.orders == 91)
        for task in leaving if how == "cancelled" else []:
            task.cancel()
        ends = await asyncio.gather(*leaving, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError if how == "cancelled" else TimeoutError}
        assert (batcher.counts.orders, batcher.counts.tokens) == (1, 5)
        watched.may_go_on.set()
        await asyncio.gather(running, staying)

    run(work())
    batcher.stop()
    assert watched.batches == [["1"], ["4"]]
    assert len(withdrawn) == 90


def test_poison_harms_only_whoever_sent_it(
    batcher: Batcher, translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()

    async def work() -> list[object]:
        batcher.start()
        first = asyncio.create_task(batcher.ask(watched, ["1"], [5], 30.0))
        await until(lambda: watched.batches)
        others = [batcher.ask(watched, [text], [5], 30.0) for text in ("12", "poison", "34")]
        gathered = asyncio.gather(first, *others, return_exceptions=True)
        await until(lambda: batcher.counts.orders == 3)
        watched.may_go_on.set()
        found = list(await gathered)
        assert batcher.is_alive
        assert texts_of(await batcher.ask(watched, ["56"], [5], 30.0)) == [translator.translate(["56"])[0].text]
        return found

    _, *found = run(work())
    batcher.stop()
    assert not batcher.is_alive
    assert [type(each) for each in found] == [list, ValueError, list]
    assert "ValueError in the models' thread" in caplog.text
    assert not [message for message in caplog.messages if "['poison']" in message]


def test_company_changes_no_translation(batcher: Batcher, translator: Translator, numbers: list[str]) -> None:
    alone = [translator.translate([text])[0].text for text in numbers[:11]]

    async def work() -> list[list[Answer]]:
        batcher.start()
        return await asyncio.gather(*(batcher.ask(Translate(EN_DE, 1), [text], [6], 30.0) for text in numbers))

    found = run(work())
    batcher.stop()
    assert [answers[0].texts[0] for answers in found[:11]] == alone
