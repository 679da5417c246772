"""A trace as a waterfall in plain text: a bar for each span, for a terminal or a log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from copilot_runtime.base.formatting import (
    clean_text,
    fit_text,
    format_count,
    format_dollars,
    format_duration,
    format_time,
    format_tokens,
    measure_text,
)
from copilot_runtime.extensions.tracing.store.records import Record, read_dollars
from copilot_runtime.extensions.tracing.store.traces import TraceSummary, summarize_trace
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

MOST_ROWS = 100
"""Maximum number of rows with one span each: larger traces group similar spans."""

_ALIKE = 3
"""Maximum number of siblings with one name that are not grouped in a large trace."""
_MOST_ERRORS = 10
_MOST_LOGS = 20
_NARROWEST = 40
_PLAIN_CHARACTERS = str.maketrans("→✗µ…", ">xu~")
_RED, _DIM, _PLAIN = "\x1b[31m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    depth: int
    start: int
    end: int
    tokens: str = ""
    dollars: str = ""
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths of the columns, in characters."""

    label: int
    bar: int
    duration: int
    tokens: int
    dollars: int


def draw_waterfall(
    records: Sequence[Record],
    *,
    width: int = 100,
    color: bool = False,
    ascii_only: bool = False,
    most_rows: int = MOST_ROWS,
) -> str:
    """Draw a trace as text: a summary, a row with a bar for each span, errors and logs.

    If a trace has more than `most_rows` spans, siblings of one name share a row, and rows beyond
    `most_rows` are omitted; 0 draws each span. Lines have at most `width` characters; values below
    40 count as 40.
    """
    summary = summarize_trace(records)
    if summary is None:
        return "The trace has no spans.\n"
    width = max(_NARROWEST, width)
    roots = build_tree(records)
    rows = [*_build_rows(roots, most_rows if len(records) > most_rows > 0 else 0)]
    left_out = len(rows) - most_rows if 0 < most_rows < len(rows) else 0
    rows = rows[: most_rows if left_out else None]
    columns = _measure(rows, width)
    lines = [*_describe(summary, width), ""]
    for row in rows:
        line = _draw_row(row, columns, summary.start, summary.end, ascii_only=ascii_only)
        lines.append(f"{_RED}{line}{_PLAIN}" if color and row.has_failed else line)
    if left_out:
        note = f"… and {left_out} more lines: --all draws each span"
        lines.append(f"{_DIM}{note}{_PLAIN}" if color else note)
    lines += _list_errors(roots, width, color=color)
    lines += _list_logs(roots, width)
    text = "\n".join(lines) + "\n"
    return (
        text.translate(_PLAIN_CHARACTERS).encode("ascii", "replace").decode()
        if ascii_only
        else text
    )


def _describe(summary: TraceSummary, width: int) -> Iterator[str]:
    state = f"{summary.errors} failed" if summary.errors else "no errors"
    parts = [
        format_time(summary.start),
        format_duration(summary.duration),
        format_count(summary.spans, "span"),
        state,
        format_tokens(summary.input_tokens, summary.output_tokens),
        format_dollars(summary.dollars, summary.unpriced) if summary.model_calls else "",
        f"thumbs {summary.rating}" if summary.rating else "",
    ]
    yield f"trace {summary.trace_id}"
    names = (("agent", summary.agent), ("thread", summary.thread_id), ("run", summary.run_id))
    described = "  ".join(f"{name} {clean_text(value)}" for name, value in names if value)
    if described:
        yield fit_text(described, width).rstrip()
    yield "  ".join(part for part in parts if part)


def _build_rows(roots: Sequence[Node], most_rows: int) -> Iterator[_Row]:
    """Yield the rows of a tree. With `most_rows`, similar siblings share a row."""
    if not most_rows:
        for node in walk_tree(roots):
            yield _build_row(node, node.depth)
        return
    waiting: list[_Row | Node] = [*reversed(_share_rows(roots))]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _Row):
            yield item
            continue
        yield _build_row(item, item.depth)
        waiting.extend(reversed(_share_rows(item.children)))


def _share_rows(nodes: Sequence[Node]) -> "list[_Row | Node]":
    """Return siblings; more than `_ALIKE` of one name become one row, in the place of the first."""
    by_name: dict[str, list[Node]] = {}
    for node in nodes:
        by_name.setdefault(node.span["name"], []).append(node)
    return [
        item
        for alike in by_name.values()
        for item in (alike if len(alike) <= _ALIKE else [_join_rows(alike)])
    ]


def _join_rows(alike: Sequence[Node]) -> _Row:
    """Return one row for siblings of one name, including the totals of their descendants."""
    every = [*walk_tree(alike)]
    failed = sum(node.has_failed for node in every)
    below = len(every) - len(alike)
    label = f"{len(alike):,}x {clean_text(alike[0].span['name'])}"
    label += f" +{below:,}" if below else ""
    return replace(
        _build_row(alike[0], alike[0].depth, every),
        label=f"✗ {label}: {failed:,} failed" if failed else label,
        start=min(node.start for node in alike),
        end=max(node.end for node in alike),
        has_failed=failed > 0,
    )


def _build_row(node: Node, depth: int, counted: Sequence[Node] = ()) -> _Row:
    label = clean_text(node.span["name"])
    chats = [it for it in counted or [node] if it.operation in semconv.INFERENCES]
    read, written = (sum(it.tokens[place] or 0 for it in chats) for place in (0, 1))
    prices = [read_dollars(it.attributes.get(semconv.COST_DOLLARS)) for it in chats]
    numbers = [price for price in prices if price is not None]
    return _Row(
        f"✗ {label}" if node.has_failed else label,
        depth,
        node.start,
        node.end,
        format_tokens(read, written),
        format_dollars(sum(numbers), len(prices) - len(numbers)) if numbers else "",
        node.has_failed,
    )


def _measure(rows: Sequence[_Row], width: int) -> _Columns:
    duration = max(len(format_duration((row.end - row.start) / 1e9)) for row in rows)
    tokens = max(len(row.tokens) for row in rows)
    dollars = max(len(row.dollars) for row in rows)
    right = duration + sum(size + 2 for size in (tokens, dollars) if size)
    if width - right < _NARROWEST:  # a narrow terminal has names and times
        right, tokens, dollars = duration, 0, 0
    longest = max(2 * row.depth + measure_text(row.label) for row in rows)
    label = min(longest, width - right - 4 - max(12, width // 4))
    return _Columns(label, width - right - label - 4, duration, tokens, dollars)


def _draw_row(row: _Row, columns: _Columns, start: int, end: int, *, ascii_only: bool) -> str:
    indent = min(2 * row.depth, columns.label // 2)
    whole = max(1, end - start)
    first = min(columns.bar - 1, (row.start - start) * columns.bar // whole)
    size = max(1, min(columns.bar - first, -((row.start - row.end) * columns.bar // whole)))
    mark, edges = ("#", "||") if ascii_only else ("█", "▕▏")
    bar = " " * first + mark * size
    parts = [
        fit_text(" " * indent + row.label, columns.label),
        f"{edges[0]}{bar.ljust(columns.bar)}{edges[1]}",
        format_duration((row.end - row.start) / 1e9).rjust(columns.duration),
    ]
    line = f"{parts[0]} {parts[1]} {parts[2]}"
    for text, size in ((row.tokens, columns.tokens), (row.dollars, columns.dollars)):
        if size:
            line += f"  {text.rjust(size)}"
    return line.rstrip()


def _list_errors(roots: Sequence[Node], width: int, *, color: bool) -> Iterable[str]:
    """Yield a line for each failed span, with its error message if content is stored."""
    failed = [node for node in walk_tree(roots) if node.has_failed]
    if not failed:
        return
    yield ""
    for node in failed[:_MOST_ERRORS]:
        message = clean_text(node.span["status"]["message"])
        text = f"✗ {clean_text(node.span['name'])}: {node.error_type}"
        line = fit_text(f"{text}: {message}" if message else text, width).rstrip()
        yield f"{_RED}{line}{_PLAIN}" if color else line
    if len(failed) > _MOST_ERRORS:
        yield f"… and {len(failed) - _MOST_ERRORS} more that failed"


def _list_logs(roots: Sequence[Node], width: int) -> Iterable[str]:
    """Yield the last log records of other processes, sorted by time."""
    found = [
        (event["time_unix_nano"], event["attributes"], node.span["name"])
        for node in walk_tree(roots)
        for event in node.span["events"]
        if semconv.LOG_SEVERITY in event["attributes"]
    ]
    if not found:
        return
    yield ""
    for time, of, name in sorted(found, key=itemgetter(0))[-_MOST_LOGS:]:
        who = of.get(semconv.LOG_LOGGER) or name
        body = of.get(semconv.LOG_BODY) or of.get(semconv.EXCEPTION_TYPE) or ""
        line = f"{format_time(time)}  {of[semconv.LOG_SEVERITY]}  {who}  {body}"
        yield fit_text(clean_text(line), width).rstrip()
    if len(found) > _MOST_LOGS:
        yield f"… the last {_MOST_LOGS} of {len(found):,} lines of logs"
