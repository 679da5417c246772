"""What is measured of a store, in this order: the first case fills it for those that follow."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.streaming.load import Figures
from benchmarks.threads.conversations import Conversation, called, spoken, unended
from benchmarks.threads.stopwatch import Stopwatch
from copilot_runtime.api.events import RunFinished, TextMessageContent
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore

PROMISED_EVENTS = 10_000
"""How long the thread is whose replay was promised to be quick."""

_EVENTS_PER_RUN = 10
_AT_ONCE = 200
_ROUNDS = 100
_PAGE = 50
_SAY_EVERY_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A store, and how much goes in: threads, and the events of its longest thread."""

    store: ThreadStore
    threads: int
    longest: int
    say: Callable[[str], None]


async def fill(bench: Bench) -> Figures:
    """Begin and write many threads of one short run each, as 200 clients would at a time."""
    watch, said_at = Stopwatch(), time.monotonic()
    for first in range(0, bench.threads, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, bench.threads))
        with watch.lap():
            await _keep(bench.store, [spoken(f"t{n}", f"r{n}", _EVENTS_PER_RUN) for n in numbers])
        if time.monotonic() - said_at > _SAY_EVERY_S:
            said_at = time.monotonic()
            bench.say(f"{numbers.stop:,} of {bench.threads:,} threads")
    return watch.rates(bench.threads)


async def append_one(bench: Bench) -> Figures:
    """One stream: every event is written by itself."""
    return await _append(bench.store, runs=1, rounds=_ROUNDS * 10)


async def append_many(bench: Bench) -> Figures:
    """Two hundred streams: their next events are written together."""
    return await _append(bench.store, runs=_AT_ONCE, rounds=_ROUNDS)


async def _append(store: ThreadStore, *, runs: int, rounds: int) -> Figures:
    open_runs = [unended(spoken(f"a{runs}-{n}", f"a{runs}-{n}", 4)) for n in range(runs)]
    for conversation in open_runs:
        await store.begin(conversation.run)
    await store.write([conversation.segment() for conversation in open_runs])
    watch = Stopwatch()
    logs = {conversation.run.log_id: list(conversation.events) for conversation in open_runs}
    for number in range(rounds):
        word = f"word {number} "
        segments = [
            Segment(log_id=key, events=[TextMessageContent(message_id=f"m-{key}", content=word)])
            for key in logs
        ]
        with watch.lap():
            await store.write(segments)
    for key, log in logs.items():
        await store.write(
            [Segment(log_id=key, events=[RunFinished()], whole=[*log, RunFinished()])]
        )
    return watch.figures() | watch.rates(runs * rounds)


async def list_first(bench: Bench) -> Figures:
    """The page that a list of threads opens with."""
    return await _list(bench.store, cursor=None)


async def list_deep(bench: Bench) -> Figures:
    """A page in the middle of all threads."""
    cursor = None
    said_at = time.monotonic()
    pages = max(1, bench.threads // _PAGE // 2)
    for number in range(pages):
        query = ThreadQuery(owner="", limit=_PAGE, cursor=cursor)
        page = await bench.store.list(query)
        assert page.next_cursor is not None, "the list ended before its middle"
        cursor = page.next_cursor
        if time.monotonic() - said_at > _SAY_EVERY_S:
            said_at = time.monotonic()
            bench.say(f"{number + 1:,} of {pages:,} pages")
    return await _list(bench.store, cursor=cursor)


async def _list(store: ThreadStore, cursor: str | None) -> Figures:
    watch = Stopwatch()
    query = ThreadQuery(owner="", limit=_PAGE, cursor=cursor)
    for _ in range(_ROUNDS):
        with watch.lap():
            page = await store.list(query)
        assert len(page.threads) == _PAGE, f"{len(page.threads)} threads on a page"
    return watch.figures()


async def replay_short(bench: Bench) -> Figures:
    """Threads of one short run, anywhere among all."""
    watch, seen = Stopwatch(), 0
    for number in range(0, bench.threads, max(1, bench.threads // 1000)):
        with watch.lap():
            runs = await bench.store.runs(ThreadKey("", f"t{number}"))
        assert len(runs) == 1, f"{len(runs)} runs in the thread {number}"
        seen += sum(len(run.events) for run in runs)
    return watch.figures() | {"events": round(seen / len(watch.walls_us))}


async def replay_spoken(bench: Bench) -> Figures:
    """A long conversation: a hundred answers, word by word when they were written."""
    per_run = PROMISED_EVENTS // 100
    return await _replay(bench, "spoken", [spoken("spoken", f"s{n}", per_run) for n in range(100)])


async def replay_calls(bench: Bench) -> Figures:
    """A hundred runs of calls, of which nothing can be shortened."""
    per_run = PROMISED_EVENTS // 100 + 2
    return await _replay(bench, "called", [called("called", f"c{n}", per_run) for n in range(100)])


async def replay_open(bench: Bench) -> Figures:
    """A run that goes on: all it has said so far, word by word."""
    return await _replay(bench, "open", [unended(spoken("open", "open", PROMISED_EVENTS))])


async def replay_longest(bench: Bench) -> Figures:
    """The longest thread: many runs, half of them calls."""
    per_run, makers = 1000, (spoken, called)
    numbers = range(bench.longest // per_run)
    runs = [makers[n % 2]("longest", f"l{n}", per_run) for n in numbers]
    return await _replay(bench, "longest", runs)


async def _replay(bench: Bench, thread: str, runs: Sequence[Conversation]) -> Figures:
    for conversation in runs:
        await _keep(bench.store, [conversation])
    watch, kept = Stopwatch(), []
    for _ in range(10):
        with watch.lap():
            kept = await bench.store.runs(ThreadKey("", thread))
    assert len(kept) == len(runs), f"{len(kept)} of {len(runs)} runs"
    written = sum(len(conversation.events) for conversation in runs)
    events = sum(len(run.events) for run in kept)
    return watch.figures() | {"written": written, "events": events}


async def _keep(store: ThreadStore, conversations: Sequence[Conversation]) -> None:
    await asyncio.gather(*[store.begin(conversation.run) for conversation in conversations])
    await store.write([conversation.segment() for conversation in conversations])


Case = Callable[[Bench], Awaitable[Figures]]
CASES: dict[str, Case] = {
    "fill": fill,
    "append-1": append_one,
    "append-200": append_many,
    "list-first": list_first,
    "list-deep": list_deep,
    "replay-short": replay_short,
    "replay-spoken": replay_spoken,
    "replay-calls": replay_calls,
    "replay-open": replay_open,
    "replay-longest": replay_longest,
}
