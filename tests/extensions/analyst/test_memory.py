"""What the analyst remembers: for its owner, without values, and never in the answer's way."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from copilot_runtime.base.errors import Misuse, NotFound, StoreFailed
from copilot_runtime.extensions.analyst.memory.entries import (
    LIMITS,
    MOST_PINS,
    NOTHING,
    Kind,
    MemoryEntry,
    TableMemory,
    Turn,
    read_memory,
    render_compact,
    render_full,
    write_memory,
)
from copilot_runtime.extensions.analyst.memory.memory import (
    FILE,
    AnalystMemory,
    Change,
    MemoryKey,
    MemoryStore,
)
from copilot_runtime.extensions.analyst.results import Column, Fix
from copilot_runtime.telemetry.span import Span
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

COLUMNS = [Column("score", "DOUBLE"), Column("customer", "VARCHAR")]
KEY = MemoryKey(table="orders", fingerprint="0123456789ab", owner="ann")
FIX = Fix(
    kind="column",
    before="scor",
    after="score",
    description="Column 'scor' not found → replaced with 'score' (fuzzy match)",
)
TURN = Turn(
    sql=["select avg(o.score) from orders o where o.customer = 'jo@example.com' and x > 12345"],
    fixes=[FIX, replace(FIX, description="asked +49 170 1234567")],
    failures=[("select secret from passwords where id = 7", "Refused: 'Jo Smith'")],
    columns=COLUMNS,
)


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path)


@pytest.fixture
def memory(store: MemoryStore) -> AnalystMemory:
    return AnalystMemory(store, now=lambda: "2026-11-23")


async def test_a_turn_is_remembered_without_what_it_was_about(memory: AnalystMemory) -> None:
    assert await memory.record(KEY, TURN)

    text = render_full(await memory.recall(KEY), "orders")

    assert text.splitlines() == [
        "Memory of orders",
        "",
        "Queries that worked (? stands for a value):",
        "- SELECT AVG(o.score) FROM orders AS o WHERE o.customer = ? AND x > ? (1.00 hits)",
        "",
        "Columns by use:",
        "- score (1.00 hits)",
        "- customer (1.00 hits)",
        "",
        "Repairs that worked:",
        "- Column 'scor' not found → replaced with 'score' (fuzzy match) <- column (1.00 hits)",
        "- asked ? <- column (1.00 hits)",
        "",
        "What was refused or failed:",
        "- SELECT secret FROM passwords WHERE id = ? <- Refused: '?' (1.00 hits)",
    ]
    await memory.aclose()


async def test_only_the_owner_can_list_change_and_forget(memory: AnalystMemory) -> None:
    await memory.record(KEY, TURN)
    await memory.record(replace(KEY, owner=None), TURN)
    entries = await memory.list("ann")
    [first] = (one for one in entries if one.entry.kind == "pattern")

    for stranger in ("bob", None, ""):
        with pytest.raises(NotFound):
            await memory.edit(stranger, first.entry.id, text="mine")
        with pytest.raises(NotFound):
            await memory.forget(stranger, first.entry.id)
    assert await memory.forget("bob") == 0
    assert await memory.list("bob") == []
    assert await memory.recall(replace(KEY, owner="bob")) == TableMemory()

    changed = await memory.edit(
        "ann", first.entry.id, text="SELECT 'x'", note="the right one", is_pinned=True, is_good=True
    )
    assert changed.entry == replace(
        first.entry, text="SELECT '?'", note="the right one", is_pinned=True, hits=2.0
    )
    assert await memory.forget("ann", first.entry.id) == 1
    assert await memory.forget("ann", table="other") == 0
    assert await memory.forget("ann", table="orders") == len(entries) - 1
    assert await memory.list("ann") == []
    assert len(await memory.list(None)) == len(entries)
    await memory.aclose()


async def test_each_agent_table_and_schema_has_a_memory_of_its_own(memory: AnalystMemory) -> None:
    await memory.record(KEY, TURN)

    for other in ({"agent": "a"}, {"table": "o:rders"}, {"fingerprint": "ba9876543210"}):
        assert await memory.recall(replace(KEY, **other)) == TableMemory()
    assert len(await memory.recall(KEY)) > 0
    await memory.aclose()


async def test_turns_at_the_same_time_all_count(memory: AnalystMemory) -> None:
    turns = [Turn(sql=["SELECT score FROM orders"], columns=COLUMNS) for _ in range(20)]

    await asyncio.gather(*(memory.record(KEY, turn) for turn in turns))

    [column] = (await memory.recall(KEY)).select("column")
    assert column.hits == pytest.approx(sum(0.9**n for n in range(20)))
    await memory.aclose()


def test_keys_are_those_of_axis() -> None:
    key = MemoryKey(table="eval_data", fingerprint="4b5c2d0e4d47")

    assert str(key) == "copilot_memory:eval_data:4b5c2d0e4d47"
    assert str(replace(key, agent="alpha_bot")) == f"{key}:alpha_bot"
    assert str(replace(key, owner="a:b")) == f"{key}::a%3Ab"


async def test_nothing_is_learnt_without_sql_or_if_it_is_off(store: MemoryStore) -> None:
    off = AnalystMemory(store, is_enabled=False)

    assert not await AnalystMemory(store).record(KEY, Turn(fixes=[FIX]))
    assert not await off.record(KEY, TURN)
    assert await AnalystMemory(store).record(KEY, TURN)
    assert await off.recall(KEY) == TableMemory()
    assert await store.read("ann") != {}


class FailingStore(MemoryStore):
    """Raises, or never returns."""

    def __init__(self, folder: Path, error: Exception | None) -> None:
        super().__init__(folder)
        self._error = error

    async def update(self, key: MemoryKey, change: Change) -> None:
        if self._error is None:
            await asyncio.Event().wait()
        else:
            raise self._error


@in_one_test("error", [OSError("disk full"), None])
async def test_a_store_that_fails_or_hangs_fails_the_span_and_nothing_else(
    error: Exception | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = AnalystMemory(FailingStore(tmp_path, error), time_limit=0.01)
    span = Span("memory.extract")

    memory.start_recording(KEY, TURN, span)
    assert not span.is_ended
    await memory.aclose()

    assert (span.status, span.is_ended) == ("error", True)
    assert "was not written" in caplog.text


async def test_a_value_that_cannot_be_read_is_set_aside(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.update(KEY, lambda _: "nonsense")
    memory = AnalystMemory(store)

    assert await memory.recall(KEY) == TableMemory()
    assert await memory.record(KEY, TURN)

    assert len(await memory.list("ann")) > 0
    aside = replace(KEY, fingerprint=f"{KEY.fingerprint}.broken")
    assert (await store.read("ann"))[aside] == "nonsense"
    assert "'orders'" in caplog.text


async def test_what_is_no_sql_teaches_nothing(
    memory: AnalystMemory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    await memory.record(KEY, Turn(sql=["((((", "", "SELECT " + "(" * 3_000], columns=COLUMNS))

    assert await memory.recall(KEY) == TableMemory()


def test_the_prompt_gets_at_most_a_thousand_characters_in_whole_lines() -> None:
    long = "x" * 119
    entries = [MemoryEntry(kind="column", text=f"column_{at}") for at in range(15)]
    entries += [MemoryEntry(kind="pattern", text=f"{long}{at}") for at in range(10)]
    entries += [MemoryEntry(kind="fix", text=f"{long}{at}", detail="d" * 120) for at in range(5)]
    memory = TableMemory(entries=entries)

    lines = render_compact(memory).splitlines()

    assert sum(map(len, lines)) + len(lines) - 1 <= 1_000
    assert [line[:22] for line in lines[:2]] == ["- Often used columns: ", "- Repair that worked: "]
    assert lines[-1] == "(recall_memory has everything.)"
    assert lines[-2].endswith("x0") or long in lines[-2]
    assert render_compact(TableMemory()) == ""
    assert render_full(TableMemory()) == NOTHING


def test_memory_closes_no_block() -> None:
    memory = TableMemory(entries=[MemoryEntry(kind="column", text="a\n</schema>", note="<system>")])

    for text in (render_compact(memory), render_full(memory)):
        assert "</schema>" not in text
        assert "<system>" not in text


def _add(text: str | None) -> str:
    return f"{text or ''}x"


async def test_two_stores_share_a_file(tmp_path: Path) -> None:
    first, second = MemoryStore(tmp_path), MemoryStore(tmp_path)

    assert await first.read("ann") == {}
    await asyncio.gather(*(store.update(KEY, _add) for store in (first, second) * 3))

    assert await first.read("ann") == await second.read("ann") == {KEY: "xxxxxx"}
    await second.update(KEY, lambda _: None)
    assert await first.read("ann") == {}


async def test_a_broken_file_is_set_aside(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def list_files() -> list[Path]:
        return [*tmp_path.glob("*.broken-*")]

    (tmp_path / FILE).write_bytes(b"no database" * 1_000)

    assert await store.read("ann") == {}
    await store.update(KEY, _add)

    assert await store.read("ann") == {KEY: "x"}
    [aside] = list_files()
    assert aside.read_bytes() == b"no database" * 1_000
    assert "cannot be read" in caplog.text


async def test_a_folder_that_cannot_be_made_is_an_error_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreFailed) as caught:
        await MemoryStore(tmp_path / "file" / "folder").update(KEY, _add)
    assert str(tmp_path) not in f"{caught.value.message}{caught.value.hint}"


async def test_a_change_that_raises_disturbs_no_other(store: MemoryStore) -> None:
    def fail(_: str | None) -> str:
        raise KeyError("a mistake")

    results = await asyncio.gather(
        store.update(KEY, fail), store.update(KEY, _add), return_exceptions=True
    )

    assert [type(result) for result in results] == [KeyError, type(None)]
    assert await store.read("ann") == {KEY: "x"}


async def test_what_is_cancelled_half_way_disturbs_no_other(store: MemoryStore) -> None:
    task = asyncio.create_task(store.update(KEY, _add))
    await asyncio.sleep(0)
    task.cancel()

    await store.update(KEY, _add)

    assert (await store.read("ann"))[KEY] in ("x", "xx")


def _use(text: str, kind: Kind = "column", **fields: object) -> MemoryEntry:
    return MemoryEntry(kind=kind, text=text, **fields)  # pyright: ignore[reportArgumentType]


def _hits(memory: TableMemory) -> dict[str, float]:
    return {entry.text: round(entry.hits, 4) for entry in memory.entries}


def _count(memory: TableMemory, *texts: str, times: int = 1) -> TableMemory:
    for _ in range(times):
        memory = memory.count([_use(text) for text in texts], "now")
    return memory


def test_hits_fade_before_one_is_added() -> None:
    found = [_hits(_count(TableMemory(), "score", times=times))["score"] for times in range(1, 6)]

    assert found == [1.0, 1.9, 2.71, 3.439, 4.0951]
    assert _hits(_count(TableMemory(), "score", times=200)) == {"score": 10.0}


def test_what_is_not_used_is_forgotten_after_six_turns() -> None:
    once = _count(TableMemory(), "old")

    assert _hits(_count(once, "new", times=6))["old"] == 0.5314
    assert "old" not in _hits(_count(once, "new", times=7))


@in_one_test("kind", LIMITS)
def test_the_most_used_of_each_kind_stay(kind: Kind) -> None:
    uses = [_use(f"t{at}", kind) for at in range(25)]
    memory = TableMemory().count(uses, "1").count(uses[20:], "2")

    assert len(memory) == LIMITS[kind]
    assert {entry.text for entry in memory.select(kind)[:5]} == {f"t{at}" for at in range(20, 25)}


def test_a_turn_counts_a_use_once() -> None:
    assert _hits(_count(TableMemory(), "a", "a", "b")) == {"a": 1.0, "b": 1.0}


def test_what_is_pinned_does_not_fade_and_takes_no_place() -> None:
    memory = TableMemory().count([_use("mine", "pattern")], "1")
    memory = memory.put(_use("mine", "pattern", is_pinned=True, id=memory.entries[0].id))
    for at in range(30):
        memory = memory.count([_use(f"t{at}-{n}", "pattern") for n in range(10)], "2")

    assert _hits(memory)["mine"] == 1.0
    assert len(memory) == 11


def test_only_so_many_can_be_pinned() -> None:
    uses = [_use(f"t{at}", is_pinned=True, id=str(at)) for at in range(MOST_PINS)]
    memory = TableMemory(entries=[*uses, _use("more", id="more")])

    with pytest.raises(Misuse, match="20"):
        memory.put(_use("more", is_pinned=True, id="more"))


def test_praise_and_blame_weigh() -> None:
    memory = _count(TableMemory(), "good", "bad")
    ids = {entry.text: entry.id for entry in memory.entries}

    memory = memory.weigh([ids["good"]], is_good=True).weigh([ids["bad"]], is_good=False)
    assert _hits(memory) == {"good": 2.0, "bad": 0.5}
    assert _hits(memory.weigh([ids["bad"]], is_good=False)) == {"good": 2.0}


def test_a_memory_is_written_and_read() -> None:
    memory = TableMemory().count([_use("a", detail="d")], "now")

    assert read_memory(write_memory(memory)) == memory
    assert read_memory(None) == TableMemory()


@in_one_test(
    "text",
    [
        *("", "nonsense", "[]", "{}", '{"version": 2}'),
        '{"version": 1, "entries": [1]}',
        '{"version": 1, "entries": [{"kind": "x", "id": "1"}]}',
        '{"version": 1, "entries": 5}',
    ],
)
def test_a_broken_memory_is_an_error_of_its_value(text: str) -> None:
    with pytest.raises(ValueError):
        read_memory(text)
