"""Measured rows: written as JSON lines while a run goes on, read back by case and target."""

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.streaming.load import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case on one target, once."""

    case: str
    target: str
    repeat: int
    load1: float
    time: str
    figures: Figures
    problems: list[str] = field(default_factory=list[str])
    error: str = ""


def append_row(path: Path, row: Row) -> None:
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")


def read_rows(path: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


class Results:
    """Rows by case and target, in the order they were measured."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)

    def cases(self) -> list[str]:
        return list(dict.fromkeys(row.case for row in self._rows))

    def targets(self, case: str) -> list[str]:
        return list(dict.fromkeys(row.target for row in self._rows if row.case == case))

    def errors(self) -> list[str]:
        return [f"{row.case} {row.target}: {row.error}" for row in self._rows if row.error]

    def values(self, case: str, target: str, figure: str) -> list[float]:
        """Return a figure of all repeats that have it."""
        found = [
            row.figures.get(figure)
            for row in self._rows
            if row.case == case and row.target == target
        ]
        return [value for value in found if value is not None]

    def median(self, case: str, target: str, figure: str) -> float | None:
        values = self.values(case, target, figure)
        return statistics.median(values) if values else None

    def ratio(self, case: str, target: str, other: str, figure: str) -> float | None:
        """Return the median of a target divided by that of another."""
        mine, theirs = self.median(case, target, figure), self.median(case, other, figure)
        return None if mine is None or not theirs else mine / theirs
