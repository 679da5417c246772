"""Generated SQL against the analyst's guard and its sandbox.

`python -m tests.fuzz.analyst_sql --count 100000` says what got through. Statement 17 is the same in
every run with the same seed. `--corpus FOLDER` adds statements of DuckDB's own tests, which are
`.test` files.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sqlglot import exp

from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.parsing import parse_sql
from copilot_runtime.extensions.analyst.sql.rules import Scope, SqlRefused
from tests.fuzz.analyst_corpus import HONEST, HOSTILE, WORDS
from tests.fuzz.analyst_world import BOB, World

SLOW = 2.0
"""Seconds that the guard may take for one statement, on a busy machine."""
_UNSTABLE = re.compile(
    r"random|uuid|sample|now\(|current_|today|approx|reservoir|get_current|localtime|sleep|txid"
    r"|hash|AGE\(|physical|row_id|rowid",
    re.IGNORECASE,
)
"""What returns something else each time, or depends on how rows are stored."""
_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|\s+|.", re.DOTALL)
_JOINERS = (" ", " ", " ", "", "\n", "/**/", "--\n", "\t", "\u00a0", "\u200b", "\0", ";")


@dataclass
class Report:
    """What came of the statements."""

    verdicts: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])
    slowest: float = 0.0
    slowest_sql: str = ""
    late: int = 0
    failed: int = 0

    def describe(self) -> str:
        """Return it as text."""
        verdicts = ", ".join(f"{name} {count:,}" for name, count in self.verdicts.most_common())
        lines = [
            f"{sum(self.verdicts.values()):,} statements: {verdicts}",
            f"of those that ran: {self.failed:,} failed, {self.late:,} were interrupted",
            f"slowest in the guard: {self.slowest:.2f} s: {self.slowest_sql[:120]!r}",
            f"{len(self.problems)} problems",
            *self.problems[:50],
        ]
        return "\n".join(lines)


class Generator:
    """Makes statements from a corpus: its own, and mutations of text and of trees."""

    def __init__(self, seed: str, places: dict[str, str], more: Sequence[str] = ()) -> None:
        self._seed = seed
        self._places = places
        self.corpus = [self._fill(sql) for sql in (*HONEST, *HOSTILE)]
        self._more = more
        self._words = [self._fill(word) for word in WORDS]
        self._trees = [tree for sql in self.corpus if (tree := _parse(sql)) is not None]

    def make(self, number: int) -> str:
        """Return statement number so and so."""
        if number < len(self.corpus):
            return self.corpus[number]
        random = Random(f"{self._seed} {number}")
        kind = random.random()
        if self._more and kind < 0.3:
            return self._rename(random.choice(self._more), random)
        if kind < 0.6:
            return self._splice(random)
        return self._mutate(random)

    def _fill(self, sql: str) -> str:
        for name, value in self._places.items():
            sql = sql.replace(name, value)
        return sql

    def _mutate(self, random: Random) -> str:
        """Return a statement with other tokens here and there."""
        tokens: list[str] = _TOKEN.findall(random.choice(self.corpus))
        other: list[str] = _TOKEN.findall(random.choice(self.corpus))
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            at = random.randrange(len(tokens) + 1)
            end = min(len(tokens), at + random.choice((0, 0, 1, 1, 2, 5)))
            match random.randrange(6):
                case 0:
                    new = [random.choice(self._words)]
                case 1:
                    start = random.randrange(len(other))
                    new = other[start : start + random.randrange(1, 12)]
                case 2:
                    new = tokens[at:end] * random.choice((0, 2, 2, 30))
                case 3:
                    new = [random.choice(_JOINERS)]
                case 4:
                    new = [token.swapcase() for token in tokens[at:end]]
                case _:
                    new = [f'"{token}"' for token in tokens[at:end]]
            gap = random.choice(_JOINERS[:5])
            tokens[at:end] = [gap, *new, gap]
        return "".join(tokens)[:30_000]

    def _splice(self, random: Random) -> str:
        """Return a statement with a part of another one in place of one of its own."""
        tree = random.choice(self._trees).copy()
        for _ in range(random.choice((1, 1, 2, 3))):
            places = [node for node in tree.walk() if node.parent is not None]
            parts = [node for node in random.choice(self._trees).walk() if node.parent is not None]
            if not places or not parts:
                break
            place = random.choice(places)
            like = [part for part in parts if _is_like(part, place)] or parts
            place.replace(random.choice(like).copy())
        try:
            return tree.sql(dialect="duckdb")
        except Exception:  # a tree that cannot be written is no statement
            return self._mutate(random)

    def _rename(self, sql: str, random: Random) -> str:
        """Return a statement of DuckDB's tests over our tables."""
        names = random.choices(("orders", "notes", "kpi", "secrets", "d1.main.orders"), k=3)
        sql = re.sub(
            r"(?i)\b(from|join)(\s+)([a-z_]\w*)\b(?!\s*\()",
            lambda found: f"{found[1]}{found[2]}{random.choice(names)}",
            sql,
        )
        columns = ("id", "note", "amount", "tenant", "body")
        return re.sub(r"\b[a-k]\b", lambda _: random.choice(columns), sql)[:20_000]


def check_statement(sql: str, world: World, report: Report) -> None:
    """Give a statement to the guard, and what it lets pass to both sandboxes."""
    started = time.perf_counter()
    try:
        query = guard_sql(sql, world.rules, BOB)
    except SqlRefused as error:
        report.verdicts[error.reason] += 1
        if not error.message or not error.reason:
            report.problems.append(f"refused without a sentence: {sql!r}")
        return
    except Exception as error:  # any other one is a hole in the guard
        report.verdicts["crash"] += 1
        report.problems.append(f"{type(error).__name__} in the guard: {sql!r}")
        return
    finally:
        took = time.perf_counter() - started
        if took > report.slowest:
            report.slowest, report.slowest_sql = took, sql
        if took > SLOW:
            report.problems.append(f"{took:.1f} s in the guard: {sql[:300]!r}")
    report.verdicts["ok"] += 1
    first, second = world.run(query.with_limit(200))
    report.failed += bool(first.error)
    if first.is_late or second.is_late:
        report.late += 1
        return
    if first.find_canary(query.sql) or second.find_canary(query.sql):
        report.problems.append(f"a canary: {sql!r}\n    {query.sql}\n    {first}")
    elif first != second and not _UNSTABLE.search(query.sql):
        report.problems.append(f"other rows show: {sql!r}\n    {query.sql}\n  {first}\n  {second}")


def run_fuzz(
    count: int, *, seed: str = "0", corpus: Path | None = None, shows_progress: bool = False
) -> Report:
    """Try so many statements and return what came of them."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="analyst-fuzz-") as folder:
        world = World(Path(folder))
        try:
            more = [*_read_corpus(corpus)] if corpus else []
            generator = Generator(seed, dict(world.places), more)
            for number in range(count):
                check_statement(generator.make(number), world, report)
                if number % 2_000 == 0:
                    report.problems += world.find_damage()
                if shows_progress and number % 50 == 0:
                    _show(number, count, report)
            report.problems += world.find_damage()
            unfiltered = guard_sql("FROM orders", world.rules, Scope())
            if world.run(unfiltered.sql)[0].rows.count("'") > len("idtenantnoteamount"):
                report.problems.append("a scope without a user sees rows")
        finally:
            world.close()
    return report


def _is_like(part: exp.Expr, place: exp.Expr) -> bool:
    groups = (exp.Query, exp.Table, exp.Condition, exp.CTE, exp.Join)
    return any(isinstance(part, kind) and isinstance(place, kind) for kind in groups)


def _parse(sql: str) -> exp.Expr | None:
    try:
        return parse_sql(sql)[0]
    except Exception:  # a statement that sqlglot cannot read is mutated as a text only
        return None


def _read_corpus(folder: Path) -> Iterator[str]:
    """Yield the statements of `.test` files."""
    for path in sorted(folder.rglob("*.test")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for block in re.split(r"\n\s*\n", text):
            match = re.match(r"(?:statement|query)[^\n]*\n(.*?)(?:\n----|\Z)", block, re.DOTALL)
            if match and len(match[1]) < 4_000:
                yield match[1]


def _show(number: int, count: int, report: Report) -> None:
    done = int(30 * number / count)
    sys.stderr.write(
        f"\r[{'#' * done}{'.' * (30 - done)}] {number:,}/{count:,}  {len(report.problems)} problems"
    )
    sys.stderr.flush()


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.analyst_sql", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--corpus", type=Path)
    given = parser.parse_args()
    report = run_fuzz(
        given.count, seed=given.seed, corpus=given.corpus, shows_progress=sys.stderr.isatty()
    )
    sys.stdout.write(f"\n{report.describe()}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
