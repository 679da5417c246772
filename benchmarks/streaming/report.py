"""Rows to Markdown: a table per case (median [lowest-highest]) and the verdicts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.streaming.results import Results
from benchmarks.streaming.verdict import Promise, verdicts

Columns = Sequence[tuple[str, str]]
"""Heads and the names of the figures below them."""


@dataclass(frozen=True, slots=True)
class Table:
    """How a case is shown. The first column is the one compared with the peers."""

    title: str
    columns: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is shown of results: a table for every case, and what was promised."""

    tables: Mapping[str, Table]
    peers: Sequence[str] = ()
    promises: Sequence[Promise] = ()


def report(results: Results, layout: Layout) -> str:
    """Return all tables and the verdicts."""
    parts = [_table(results, case, layout) for case in results.cases()]
    parts += [f"ERROR {error}" for error in results.errors()]
    if any(promise.measure(results) is not None for promise in layout.promises):
        parts.append("### verdict\n" + verdicts(layout.promises, results))
    return "\n\n".join(parts)


def _table(results: Results, case: str, layout: Layout) -> str:
    title, columns, peers = layout.tables[case].title, layout.tables[case].columns, layout.peers
    heads = ["target", *(head for head, _ in columns), *(f"x {peer}" for peer in peers), "failed"]
    lines = [f"### {case}: {title}", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for target in results.targets(case):
        cells = [_cell(results.values(case, target, figure)) for _, figure in columns]
        for peer in peers:
            ratio = results.ratio(case, target, peer, columns[0][1])
            cells.append("-" if ratio is None else f"{ratio:.2f}")
        failed = results.values(case, target, "failed")
        cells.append(f"{sum(failed):g}" if failed else "-")
        lines.append("| " + " | ".join([target, *cells]) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = _number(min(values)), _number(max(values))
    return _number(statistics.median(values)) + (f" [{low}-{high}]" if low != high else "")


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
