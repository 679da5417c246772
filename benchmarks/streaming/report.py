"""Rows to Markdown: a table per case (median [lowest-highest]) and the verdicts.

By hand: `python -m benchmarks.streaming.report results.jsonl`.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.streaming.results import Results, read_rows
from benchmarks.streaming.verdict import verdicts

PEERS = ("node-v1", "nginx")

Columns = Sequence[tuple[str, str]]
_WAITS: Columns = (
    ("TTFT p50 ms", "ttft_p50_ms"),
    ("TTFT p99", "ttft_p99_ms"),
    ("chunk p50 ms", "chunk_p50_ms"),
    ("chunk p99", "chunk_p99_ms"),
)
_FLOOD: Columns = (
    ("CPU us/chunk", "cpu_us_per_chunk"),
    ("chunks/s", "chunks_per_s"),
    ("wall s", "wall_s"),
    ("wire B/chunk", "wire_bytes_per_chunk"),
)
_PACED: Columns = (*_FLOOD[:2], *_WAITS, *_FLOOD[3:], ("RSS MB", "rss_after_mb"))
_CHATS: Columns = (
    ("CPU ms/chat", "cpu_ms_per_chat"),
    ("chats/s", "chats_per_s"),
    ("chat p50 ms", "chat_p50_ms"),
    ("chat p99", "chat_p99_ms"),
    ("RSS MB", "rss_after_mb"),
)
_MEMORY: Columns = (
    ("kB/open stream", "kb_per_stream"),
    ("idle MB", "idle_mb"),
    ("1 open", "open_1_mb"),
    ("50", "open_50_mb"),
    ("200", "open_200_mb"),
    ("1000", "open_1000_mb"),
    ("after", "after_mb"),
    ("TTFT p99 ms at 1000", "ttft_p99_ms"),
)
_START: Columns = (
    ("first answer s", "first_answer_s"),
    ("listening s", "listening_s"),
    ("CPU s", "start_cpu_s"),
    ("RSS MB", "rss_mb"),
)
_ABORTS: Columns = (
    ("left open", "leaked"),
    ("aborted", "aborted"),
    ("upstream closed", "closed"),
    ("close p50 ms", "close_p50_ms"),
    ("close p99", "close_p99_ms"),
)
# title and columns; the first column is the one compared with the peers
TABLES: dict[str, tuple[str, Columns]] = {
    "A": ("flood, 32 streams", _FLOOD),
    "AL": ("flood, 32 long streams", _FLOOD),
    "B": ("200 streams of 20 chunks/s", _PACED),
    "B1": ("20 streams of 20 chunks/s", _PACED),
    "C": ("memory with open streams", _MEMORY),
    "C20": ("1,000 streams of 20 chunks/s", _PACED),
    "D": ("chats of one chunk", _CHATS),
    "DH": ("chats of one chunk after 200 messages", _CHATS),
    "E": ("start", _START),
    "F": ("100 clients leave", _ABORTS),
    "T": ("arguments of a call", _FLOOD),
}


def report(results: Results) -> str:
    """Return all tables and the verdicts."""
    parts = [_table(results, case) for case in results.cases()]
    parts += [f"ERROR {error}" for error in results.errors()]
    if any("ours" in results.targets(case) for case in results.cases()):
        parts.append("### verdict\n" + verdicts(results))
    return "\n\n".join(parts)


def _table(results: Results, case: str) -> str:
    title, columns = TABLES[case]
    heads = ["target", *(head for head, _ in columns), *(f"x {peer}" for peer in PEERS), "failed"]
    lines = [f"### {case}: {title}", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for target in results.targets(case):
        cells = [_cell(results.values(case, target, figure)) for _, figure in columns]
        for peer in PEERS:
            ratio = results.ratio(case, target, peer, columns[0][1])
            cells.append("-" if ratio is None else f"{ratio:.2f}")
        failed = sum(results.values(case, target, "failed"))
        lines.append("| " + " | ".join([target, *cells, f"{failed:g}"]) + " |")
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


if __name__ == "__main__":
    print(report(Results(read_rows(Path(sys.argv[1])))))
