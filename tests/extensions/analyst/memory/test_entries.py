"""How what is remembered fades and is evicted."""

import pytest

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.analyst.memory.entries import (
    LIMITS,
    MOST_PINS,
    Kind,
    MemoryEntry,
    TableMemory,
    read_memory,
    write_memory,
)
from tests.in_one_test import in_one_test


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
    memory = TableMemory(schema=[("a", "DOUBLE")]).count([_use("a", detail="d")], "now")

    assert read_memory(write_memory(memory)) == memory
    assert read_memory(None) == TableMemory()


@in_one_test(
    "text",
    [
        *("", "nonsense", "[]", "{}", '{"version": 2}'),
        '{"version": 1, "schema": [], "entries": [1]}',
        '{"version": 1, "schema": [], "entries": [{"kind": "x", "id": "1"}]}',
        '{"version": 1, "schema": 5, "entries": []}',
        '{"version": 1, "schema": [["a"]], "entries": []}',
    ],
)
def test_a_broken_memory_is_an_error_of_its_value(text: str) -> None:
    with pytest.raises(ValueError):
        read_memory(text)
