"""Writes what is remembered for the model: short for the prompt, whole for `recall_memory`."""

from collections.abc import Sequence

from copilot_runtime.extensions.analyst.memory.entries import Entry, TableMemory
from copilot_runtime.extensions.analyst.prompt.untrusted import cut_lines, quote_line

MOST_CHARS = 1_000
"""Characters of what goes into each prompt."""

NOTHING = "No memory recorded for this table yet."

_MOST_COLUMNS = 8
_MOST_FIXES = 2
_POINTER = "(recall_memory has everything.)"


def render_compact(memory: TableMemory, limit: int = MOST_CHARS) -> str:
    """Return what matters most in at most `limit` characters, in whole lines; "" for nothing."""
    if not memory.entries:
        return ""
    columns = memory.select("column")[:_MOST_COLUMNS]
    lines = [f"- Verified: {_write(entry)}" for entry in memory.entries if entry.is_pinned]
    if columns:
        names = ", ".join(f"{quote_line(one.text)} ({one.hits:.1f})" for one in columns)
        lines.append(f"- Often used columns: {names}")
    lines += [f"- Repair that worked: {_write(one)}" for one in memory.select("fix")[:_MOST_FIXES]]
    lines += [
        f"- Query that worked: {_write(one)}"
        for one in memory.select("pattern")
        if not one.is_pinned
    ]
    lines += [f"- Failed before: {_write(one)}" for one in memory.select("failure")]
    body = cut_lines("\n".join(lines), limit - len(_POINTER) - 1)
    return f"{body}\n{_POINTER}" if body else ""


def render_full(memory: TableMemory, table: str = "") -> str:
    """Return everything, with counts."""
    if not memory.entries:
        return NOTHING
    title = f"Memory of {quote_line(table)}" if table else "Memory"
    sections = [
        _section("Queries that worked (? stands for a value)", memory.select("pattern")),
        _section("Columns by use", memory.select("column")),
        _section("Repairs that worked", memory.select("fix")),
        _section("What was refused or failed", memory.select("failure")),
    ]
    return "\n\n".join([title, *(section for section in sections if section)])


def _section(title: str, entries: Sequence[Entry]) -> str:
    lines = [f"- {_write(one)} ({one.hits:.2f} hits{_mark(one)})" for one in entries]
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _mark(entry: Entry) -> str:
    return ", verified by the user" if entry.is_pinned else ""


def _write(entry: Entry) -> str:
    detail = f" <- {quote_line(entry.detail, 120)}" if entry.detail else ""
    note = f"; note: {quote_line(entry.note, 120)}" if entry.note else ""
    return f"{quote_line(entry.text, 300)}{detail}{note}"
