"""What the analyst remembers: for its owner, without values, and never in the answer's way."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.analyst.memory.duckdb_store import DuckDbMemoryStore
from copilot_runtime.extensions.analyst.memory.entries import (
    NOTHING,
    MemoryEntry,
    TableMemory,
    render_compact,
    render_full,
)
from copilot_runtime.extensions.analyst.memory.memory import AnalystMemory
from copilot_runtime.extensions.analyst.memory.store import (
    Change,
    MemoryKey,
    ProcessMemoryStore,
)
from copilot_runtime.extensions.analyst.memory.turn import Turn
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
    fixes=[FIX, ("No 'Jo Smith' in 550e8400-e29b-41d4-a716-446655440000", "asked +49 170 1234567")],
    failures=[("select secret from passwords where id = 7", "Refused: 'Jo Smith'")],
    columns=COLUMNS,
)


@pytest.fixture(params=["process", "file"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AnalystMemory:
    store = DuckDbMemoryStore(tmp_path) if request.param == "file" else ProcessMemoryStore()
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
        "- asked ? <- No '?' in ? (1.00 hits)",
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
        assert await memory.recall(replace(KEY, **other), COLUMNS) == TableMemory()
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


async def test_nothing_is_learnt_without_sql_or_if_it_is_off() -> None:
    store = ProcessMemoryStore()
    off = AnalystMemory(store, is_enabled=False)

    assert not await AnalystMemory(store).record(KEY, Turn(fixes=[FIX]))
    assert not await off.record(KEY, TURN)
    assert await AnalystMemory(store).record(KEY, TURN)
    assert await off.recall(KEY) == TableMemory()
    assert await store.read("ann") != {}


async def test_a_table_with_more_columns_begins_anew_unless_memories_migrate() -> None:
    store = ProcessMemoryStore()
    await AnalystMemory(store).record(KEY, TURN)
    grown = replace(KEY, fingerprint="ffffffffffff")
    more = [*COLUMNS, Column("country", "VARCHAR")]
    renamed = [Column("points", "DOUBLE"), *more[1:]]

    assert await AnalystMemory(store).recall(grown, more) == TableMemory()
    memory = AnalystMemory(store, migrates=True)
    assert await memory.recall(grown, renamed) == TableMemory()
    assert await memory.recall(grown, more) == await memory.recall(KEY)
    await memory.record(grown, Turn(sql=["SELECT score FROM orders"], columns=more))
    [score, *_] = (await memory.recall(grown, more)).select("column")
    assert (score.text, score.hits) == ("score", 1.9)
    assert (await memory.recall(KEY)).select("column")[0].hits == 1.0


async def test_thumbs_weigh_the_queries_of_an_answer() -> None:
    memory = AnalystMemory(ProcessMemoryStore())
    await memory.record(KEY, Turn(sql=["SELECT 1 FROM a", "SELECT 2 FROM b"], columns=COLUMNS))

    await memory.rate(KEY, ["select 9 from a"], is_good=True)
    await memory.rate(KEY, ["select 9 from b"], is_good=False)

    hits = {one.text: one.hits for one in (await memory.recall(KEY)).entries}
    assert hits == {"SELECT ? FROM a": 2.0, "SELECT ? FROM b": 0.5}


class FailingStore(ProcessMemoryStore):
    """Raises, or never returns."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    async def update(self, key: MemoryKey, change: Change) -> None:
        if self._error is None:
            await asyncio.Event().wait()
        else:
            raise self._error


@in_one_test("error", [OSError("disk full"), None])
async def test_a_store_that_fails_or_hangs_fails_the_span_and_nothing_else(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    memory = AnalystMemory(FailingStore(error), time_limit=0.01)
    span = Span("memory.extract")

    memory.start_recording(KEY, TURN, span)
    assert not span.is_ended
    await memory.aclose()

    assert (span.status, span.is_ended) == ("error", True)
    assert "was not written" in caplog.text


async def test_a_value_that_cannot_be_read_is_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    store = ProcessMemoryStore()
    await store.update(KEY, lambda _: "nonsense")
    memory = AnalystMemory(store)

    assert await memory.recall(KEY) == TableMemory()
    assert await memory.record(KEY, TURN)

    assert len(await memory.list("ann")) > 0
    aside = replace(KEY, fingerprint=f"{KEY.fingerprint}.broken")
    assert (await store.read("ann"))[aside] == "nonsense"
    assert "'orders'" in caplog.text


async def test_what_is_no_sql_teaches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    memory = AnalystMemory(ProcessMemoryStore())

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
