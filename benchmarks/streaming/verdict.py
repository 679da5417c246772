"""What we promised against what was measured: a floor that must hold and an aim, per figure."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.streaming.results import Results

Measure = Callable[[Results], float | None]


def verdicts(results: Results) -> str:
    """Return the table of promises, in Markdown."""
    lines = ["| promise | floor | aim | measured | verdict |", "|---|---|---|---|---|"]
    lines += [promise.line(results) for promise in PROMISES]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Promise:
    """One figure of `ours`: not above its floor, better at its aim (below for `at_least`)."""

    name: str
    floor: float
    aim: float
    unit: str
    measure: Measure
    at_least: bool = False

    def line(self, results: Results) -> str:
        measured = self.measure(results)
        sign = "≥" if self.at_least else "≤"
        limits = f"{sign} {self.floor:g}{self.unit} | {sign} {self.aim:g}{self.unit}"
        shown = "-" if measured is None else f"{measured:.3g}{self.unit}"
        return f"| {self.name} | {limits} | {shown} | {self._judge(measured)} |"

    def _judge(self, measured: float | None) -> str:
        if measured is None:
            return "not measured"
        if self._holds(measured, self.aim):
            return "ok, aim reached"
        return "ok" if self._holds(measured, self.floor) else "**missed**"

    def _holds(self, measured: float, limit: float) -> bool:
        return measured >= limit if self.at_least else measured <= limit


def _ratio(case: str, figure: str) -> Measure:
    return lambda results: results.ratio(case, "ours", "node-v1", figure)


def _median(case: str, figure: str) -> Measure:
    return lambda results: results.median(case, "ours", figure)


def _worst(case: str, figure: str) -> Measure:
    return lambda results: max(results.values(case, "ours", figure), default=None)


def _first_chunk_over_direct(results: Results) -> float | None:
    """Compare what the servers add to the wait for the first chunk."""
    ours, node, direct = (
        results.median("B1", target, "ttft_p50_ms") for target in ("ours", "node-v1", "direct")
    )
    if ours is None or node is None or direct is None or node <= direct:
        return None
    return (ours - direct) / (node - direct)


PROMISES = (
    Promise("B: CPU per chunk, of node-v1", 0.45, 0.3, "x", _ratio("B", "cpu_us_per_chunk")),
    Promise("A: CPU per chunk, of node-v1", 0.5, 0.3, "x", _ratio("A", "cpu_us_per_chunk")),
    Promise("D: CPU per chat, of node-v1", 0.3, 0.1, "x", _ratio("D", "cpu_ms_per_chat")),
    Promise("C20: chunks/s, of node-v1", 2, 2.5, "x", _ratio("C20", "chunks_per_s"), at_least=True),
    Promise("C20: failed chats", 0, 0, "", _worst("C20", "failed")),
    Promise("B1: TTFT over direct, of node-v1", 0.5, 0.25, "x", _first_chunk_over_direct),
    Promise("B: chunk p99", 5, 2.5, " ms", _median("B", "chunk_p99_ms")),
    Promise("C: idle memory", 80, 60, " MB", _median("C", "idle_mb")),
    Promise("C: memory per open stream", 120, 80, " kB", _median("C", "kb_per_stream")),
    Promise("E: first answer after start", 0.9, 0.5, " s", _median("E", "first_answer_s")),
    Promise("F: upstreams left open of 100", 0, 0, "", _worst("F", "leaked")),
    Promise("F: upstream closed, p99", 200, 20, " ms", _worst("F", "close_p99_ms")),
)
