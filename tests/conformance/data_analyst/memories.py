"""Memory across questions: what is learnt, how it fades, and what the model is told of it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from copilot_runtime.extensions.analyst.engine.datasets import fingerprint_schema
from copilot_runtime.extensions.analyst.memory.entries import (
    TableMemory,
    Turn,
    render_compact,
    render_full,
)
from copilot_runtime.extensions.analyst.memory.memory import (
    AnalystMemory,
    Change,
    MemoryKey,
    MemoryStore,
)
from copilot_runtime.extensions.analyst.results import Column, Fix
from copilot_runtime.telemetry.span import Span
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Text, Unknown
from tests.conformance.data_analyst.world import World

COLUMNS = [
    Column("dataset_id", "VARCHAR"),
    Column("faithfulness_score", "DOUBLE"),
    Column("relevance_score", "DOUBLE"),
]
TABLE = "eval_data"
USED = f"SELECT avg(faithfulness_score) FROM {TABLE}"
OTHER = f"SELECT count(*) FROM {TABLE}"


class DictStore(MemoryStore):
    """Keeps values in this process."""

    def __init__(self) -> None:
        self._values: dict[MemoryKey, str] = {}

    async def read(self, owner: str | None) -> Mapping[MemoryKey, str]:
        return {key: value for key, value in self._values.items() if key.owner == owner}

    async def update(self, key: MemoryKey, change: Change) -> None:
        value = change(self._values.pop(key, None))
        if value is not None:
            self._values[key] = value


class Notebook:
    """A memory, and the key of what is recorded."""

    def __init__(self, columns: Sequence[Column] = COLUMNS, **options: Any) -> None:
        self.store = DictStore()
        self.memory = AnalystMemory(self.store, **options)
        self.columns = columns
        self.key = MemoryKey(table=TABLE, fingerprint=fingerprint_schema(columns))

    async def record(self, *sql: str, **fields: Any) -> bool:
        return await self.memory.record(self.key, Turn(sql=sql, columns=self.columns, **fields))

    async def recall(self) -> TableMemory:
        return await self.memory.recall(self.key)


async def answer(given: Given, world: World) -> Facts:
    """Record what is given, and return what is remembered then."""
    for name, handler in _HANDLERS.items():
        if name in given:
            return await handler(given)
    raise Unknown(f"No handler of memory reads any of {', '.join(given)}.")


async def _use_column(given: Given) -> Facts:
    """Use a column in so many turns, then not in so many others."""
    name = given["column"]
    book = Notebook([*COLUMNS, Column(name, "DOUBLE")] if name not in _names() else COLUMNS)
    for _ in range(_count(given, _USES, 1)):
        await book.record(f"SELECT avg({name}) FROM {TABLE}")
    for _ in range(_count(given, _PAUSES, 0)):
        await book.record(OTHER)
    memory = await book.recall()
    entry = next((one for one in memory.select("column") if one.text == name), None)
    hits = entry.hits if entry else 0.0
    return {
        "hits": hits,
        "present": entry is not None,
        "evicted": entry is None,
        "survives": entry is not None,
        "stored": len(memory.select("column")),
    }


_USES = ("queried_every_record", "queried_records", "records", "used_records", "uses")
_PAUSES = ("then_unused_records", "unused_records", "then_unused", "idle_records")


def _names() -> set[str]:
    return {column.name for column in COLUMNS}


def _count(given: Given, names: Sequence[str], default: int) -> int:
    return next((int(given[name]) for name in names if name in given), default)


async def _use_hits(given: Given) -> Facts:
    """Let something that has so many hits fade for so many records."""
    book = Notebook()
    await book.record(USED)
    await _set_hits(book, float(given["hits"]))
    for _ in range(_count(given, _PAUSES, 1)):
        await book.record(OTHER)
    memory = await book.recall()
    found = [one for one in memory.select("column") if one.text == "faithfulness_score"]
    return {
        "hits": found[0].hits if found else 0.0,
        "present": bool(found),
        "evicted": not found,
        "survives": bool(found),
    }


async def _set_hits(book: Notebook, hits: float) -> None:
    def change(text: str | None) -> str | None:
        return text and re.sub(r'"hits":[0-9.]+', f'"hits":{hits}', text)

    await book.store.update(book.key, change)


async def _store_patterns(given: Given) -> Facts:
    book = Notebook()
    count = given["distinct_patterns"]
    await book.record(*(f"SELECT avg(relevance_score) AS a{n} FROM {TABLE}" for n in range(count)))
    return _describe(await book.recall(), "pattern")


async def _store_columns(given: Given) -> Facts:
    names = [f"c{number}" for number in range(given["distinct_columns"])]
    book = Notebook([Column(name, "DOUBLE") for name in names])
    await book.record(f"SELECT {', '.join(names)} FROM {TABLE}")
    return _describe(await book.recall(), "column")


async def _store_fixes(given: Given) -> Facts:
    book = Notebook()
    words = [chr(ord("a") + number) for number in range(given["distinct_fixes"])]
    await book.record(USED, fixes=[_fix(f"x{word}") for word in words])
    return _describe(await book.recall(), "fix")


async def _store_same_fix(given: Given) -> Facts:
    given["same_fix_twice"]
    book = Notebook()
    for _ in range(2):
        await book.record(USED, fixes=[_fix("faith")])
    return _describe(await book.recall(), "fix")


def _fix(before: str) -> Fix:
    after = "faithfulness_score"
    words = f"Column '{before}' not found → replaced with '{after}' (fuzzy match)"
    return Fix(kind="column", before=before, after=after, description=words)


def _describe(memory: TableMemory, kind: Any) -> dict[str, Any]:
    found = memory.select(kind)
    text = "\n".join(f"{one.text} {one.detail}" for one in found)
    return {"stored": len(found), "text": Text(text), "hits": found[0].hits if found else 0.0}


async def _fill(given: Given) -> Facts:
    """Fill a memory with as much as it takes, and write it for the model."""
    given.get("memory")
    names = [f"a_rather_long_name_of_a_column_{number}" for number in range(20)]
    book = Notebook([Column(name, "DOUBLE") for name in names])
    for number, name in enumerate(names):
        await book.record(
            f"SELECT {name}, avg({names[0]}) AS {name}_average FROM {TABLE} GROUP BY {name}",
            fixes=[_fix(f"a_column_that_was_not_there_{chr(ord('a') + number)}")],
        )
    memory = await book.recall()
    compact = render_compact(memory)
    lines = compact.splitlines()
    return {
        "injected_chars": len(compact),
        "injected_length": len(compact),
        "injected": Text(compact),
        "text": Text(compact),
        "cut_at_line_end": all(line.startswith(("- ", "(")) for line in lines),
        "full": Text(render_full(memory, TABLE)),
    }


async def _record_sql(given: Given) -> Facts:
    book = Notebook()
    is_recorded = await book.record(given["sql"])
    memory = await book.recall()
    text = "\n".join(one.text for one in memory.entries)
    facts = _describe(memory, "pattern")
    patterns = [one.text for one in memory.select("pattern")]
    return {
        **facts,
        "recorded": is_recorded and bool(memory.entries),
        "stored_text": Text(text),
        "text": Text(text),
        "pattern": patterns[0] if patterns else None,
        "columns": [one.text for one in memory.select("column")],
    }


async def _skip_turn(given: Given) -> Facts:
    """Record a turn in which no SQL ran."""
    given.get("turn_without_sql")
    given.get("turn_failed")
    book = Notebook()
    is_recorded = await book.record()
    return {"recorded": is_recorded or bool((await book.recall()).entries)}


async def _disable(given: Given) -> Facts:
    is_enabled = bool(given["copilot_memory_enabled"])
    book = Notebook(is_enabled=is_enabled)
    is_recorded = await book.record(USED)
    injected = render_compact(await book.recall())
    return {"recorded": is_recorded, "injected": injected}


class _BrokenStore(DictStore):
    async def update(self, key: Any, change: Any) -> None:
        raise RuntimeError("the disk is full")


async def _break_store(given: Given) -> Facts:
    """Record into a store that raises: nobody who asks may notice."""
    given["store_raises"]
    memory = AnalystMemory(_BrokenStore())
    span = Span("memory.extract")
    key = MemoryKey(table=TABLE, fingerprint="0" * 12)
    is_recorded = await memory.record(key, Turn(sql=[USED], columns=COLUMNS), span)
    has_failed = span.status == "error" and span.is_ended
    return {
        "response_affected": False,
        "recorded": is_recorded,
        "raises": False,
        "span": Prose(has_failed, "the span has not failed"),
    }


async def _change_schema(given: Given) -> Facts:
    """Record, change the columns, and recall for the new ones and for the old ones."""
    changes: Mapping[str, Callable[[], Sequence[Column]]] = {
        "add": lambda: [*COLUMNS, Column("extra", "INTEGER")],
        "remove": lambda: COLUMNS[:-1],
        "drop": lambda: COLUMNS[:-1],
        "rename": lambda: [*COLUMNS[:-1], Column("relevance", "DOUBLE")],
        "type": lambda: [*COLUMNS[:-1], Column("relevance_score", "FLOAT")],
        "change": lambda: [*COLUMNS[:-1], Column("relevance_score", "FLOAT")],
        "reorder": lambda: COLUMNS[::-1],
    }
    word = str(given["schema_change"]).split()[0]
    if word not in changes:
        raise Unknown(f"No handler of memory changes a schema by {word!r}.")
    book = Notebook()
    await book.record(USED)
    columns = changes[word]()
    new = MemoryKey(table=TABLE, fingerprint=fingerprint_schema(columns))
    found = await book.memory.recall(new)
    return {
        "memory_for_new_schema": "kept" if found.entries else "empty",
        "old_memory_kept": bool((await book.recall()).entries),
        "same_key": new == book.key,
    }


async def _describe_key(given: Given) -> Facts:
    agent = given.get("agent", given.get("agent_name"))
    key = MemoryKey(table=given["table"], fingerprint=given["fingerprint"], agent=agent)
    return {"key": str(key), "text": str(key)}


_HANDLERS: Mapping[str, Callable[[Given], Any]] = {
    "column": _use_column,
    "hits": _use_hits,
    "distinct_patterns": _store_patterns,
    "distinct_columns": _store_columns,
    "distinct_fixes": _store_fixes,
    "same_fix_twice": _store_same_fix,
    "memory": _fill,
    "sql": _record_sql,
    "turn_without_sql": _skip_turn,
    "turn_failed": _skip_turn,
    "copilot_memory_enabled": _disable,
    "store_raises": _break_store,
    "schema_change": _change_schema,
    "fingerprint": _describe_key,
}
"""What is given → who answers it; the first that is there."""
