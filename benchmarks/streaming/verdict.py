"""What we promised against what was measured: a floor that must hold and an aim, per figure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.streaming.results import Results

Measure = Callable[[Results], float | None]


def verdicts(promises: Iterable["Promise"], results: Results) -> str:
    """Return the table of promises, in Markdown."""
    lines = ["| promise | floor | aim | measured | verdict |", "|---|---|---|---|---|"]
    lines += [promise.line(results) for promise in promises]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Promise:
    """One figure of ours: not above its floor, better at its aim (below for `at_least`)."""

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


def ratio(case: str, target: str, peer: str, figure: str) -> Measure:
    """Measure the median of a target divided by that of a peer."""
    return lambda results: results.ratio(case, target, peer, figure)


def median(case: str, target: str, figure: str) -> Measure:
    return lambda results: results.median(case, target, figure)


def highest(case: str, target: str, figure: str) -> Measure:
    return lambda results: max(results.values(case, target, figure), default=None)


def lowest(case: str, target: str, figure: str) -> Measure:
    return lambda results: min(results.values(case, target, figure), default=None)
