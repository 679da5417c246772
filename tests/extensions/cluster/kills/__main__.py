"""Kill servers at random moments under load, as often as `--count` says.

Each scene has a number, and follows from it and the seed: `--only 17` plays one again.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from tests.extensions.cluster.kills.fork_server import forking
from tests.extensions.cluster.kills.outages import OUTAGES
from tests.extensions.cluster.kills.plan import Backends, backends
from tests.extensions.cluster.kills.run import Options, Totals, play_all, write_evidence
from tests.extensions.cluster.kills.scene import Outcome

_OUTPUT = Path(tempfile.gettempdir(), "kills")

LEAST_SHARE = 0.6
"""The share of the kills that must cut a run off, or else this shows nothing."""


def _write(text: str = "", end: str = "\n") -> None:
    sys.stdout.write(f"{text}{end}")
    sys.stdout.flush()


class Progress:
    """A bar in a terminal, and a line now and then elsewhere."""

    def __init__(self, total: int, output: Path) -> None:
        self._total = total
        self._output = output
        self._done = 0
        self._failed = 0
        self._start = monotonic()
        self._step = max(1, total // 20)

    def show(self, outcome: Outcome) -> None:
        self._done += 1
        if outcome.wrong:
            self._failed += 1
            path = write_evidence(outcome, self._output)
            _write(f"\nscene {outcome.plan.number} ({outcome.plan.moment}): {path}")
            for complaint in outcome.wrong[:5]:
                _write(f"  {complaint[:600]}")
        is_terminal = sys.stdout.isatty()
        if is_terminal or self._done % self._step == 0:
            rate = self._done / (monotonic() - self._start) * 60
            filled = 30 * self._done // self._total
            text = f"{'#' * filled:.<30} {self._done}/{self._total}, {rate:.0f} a minute"
            text += f", {self._failed} wrong"
            end = "\r" if is_terminal else "\n"
            _write(text, end=end)


def main() -> int:
    options, chosen = _parse()
    store, carrier = chosen.store, chosen.carrier
    _write(f"{store}, {carrier}, seed {options.seed}, {len(options.numbers)} scenes")
    progress = Progress(len(options.numbers), chosen.output)
    with backends(store, carrier) as needs:
        totals = asyncio.run(_play(options, needs, progress))
    return _summarize(options, totals, f"--store {store} --carrier {carrier}")


async def _play(options: Options, needs: Backends, progress: Progress) -> Totals:
    async with forking() as forks:
        return await play_all(options, needs, forks, progress.show)


def _parse() -> tuple[Options, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.extensions.cluster.kills", description=__doc__
    )
    parser.add_argument("--count", type=int, default=200, help="how many kills")
    parser.add_argument("--only", type=int, action="append", help="a scene to play again")
    parser.add_argument("--first", type=int, default=0, help="the number of the first scene")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--carrier", choices=("unix", "postgres", "redis"))
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="scenes at a time")
    parser.add_argument("--output", type=Path, default=_OUTPUT, help="a folder for evidence")
    parser.add_argument("--patience", type=float, default=5.0, help="seconds to the outcome")
    parser.add_argument("--short", action="store_true", help="as in the suite")
    parser.add_argument("--outage", choices=sorted(OUTAGES), default="", help="in place of kills")
    chosen = parser.parse_args()
    if chosen.outage:
        chosen.store, chosen.jobs = "postgres", 1
        chosen.carrier = chosen.carrier or "redis"
    chosen.carrier = chosen.carrier or ("unix" if chosen.store == "sqlite" else "postgres")
    numbers = chosen.only or range(chosen.first, chosen.first + chosen.count)
    options = Options(
        seed=chosen.seed,
        numbers=numbers,
        servers=chosen.servers,
        outage=chosen.outage,
        is_short=chosen.short,
        patience=chosen.patience,
        jobs=min(chosen.jobs, len(numbers)),
    )
    return options, chosen


def _summarize(options: Options, totals: Totals, where: str) -> int:
    """Print a table. Returns the exit status."""
    counts = totals.counts
    rows = [
        (options.outage or "kills", f"{totals.scenes} in {totals.seconds:.0f} s"),
        *(_list_recoveries(totals) if options.outage else _list_kills(totals)),
        ("runs", counts["runs"]),
        ("runs cut off", counts["cut"]),
        ("answers read", counts["readings"]),
        ("events read", counts["events"]),
        ("payments", counts["payments"]),
        ("seconds to the outcome, p50", f"{totals.find_wait(0.5):.3f}"),
        ("seconds to the outcome, p99", f"{totals.find_wait(0.99):.3f}"),
        ("seconds to the outcome, most", f"{totals.find_wait(1):.3f}"),
        ("seconds of CPU, the servers", f"{totals.processor:.1f}"),
        ("scenes that went wrong", len(totals.failures)),
    ]
    _write()
    for name, value in rows:
        _write(f"{name:<32} {value}")
    if totals.failures:
        only = " ".join(f"--only {it.plan.number}" for it in totals.failures[:20])
        what = f" --outage {options.outage}" if options.outage else ""
        again = f"{where}{what} --seed {options.seed} {only}"
        _write(f"\nOnce more: python -m tests.extensions.cluster.kills {again}")
    is_aimed = bool(options.outage) or totals.share >= LEAST_SHARE or totals.scenes < 20
    if not is_aimed:
        _write(f"\nToo few kills cut a run off: at least {LEAST_SHARE:.0%} must.")
    return 1 if totals.failures or not is_aimed else 0


def _list_kills(totals: Totals) -> Iterator[tuple[str, str]]:
    yield "that cut a run off", f"{totals.cutting} ({totals.share:.0%})"
    for moment, count in sorted(totals.by_moment.items()):
        yield f"  next to {moment}", f"{totals.cutting_by_moment[moment]} of {count}"


def _list_recoveries(totals: Totals) -> Iterator[tuple[str, str]]:
    recoveries = sorted(totals.recoveries)
    yield "seconds until all works, p50", f"{recoveries[len(recoveries) // 2]:.2f}"
    yield "seconds until all works, most", f"{recoveries[-1]:.2f}"


if __name__ == "__main__":
    sys.exit(main())
