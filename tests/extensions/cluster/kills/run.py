"""Play many scenes, several at a time, and add up what came of them."""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from tests.extensions.cluster.kills.fork_server import ForkServer
from tests.extensions.cluster.kills.outages import (
    LONG,
    OUTAGES,
    SHORT,
    OutageScene,
    build_plan,
    failing_world,
)
from tests.extensions.cluster.kills.plan import Backends, draw_plan
from tests.extensions.cluster.kills.scene import Outcome, Scene
from tests.extensions.cluster.kills.world import World

SCENES_PER_WORLD = 200
"""Then the next ones get a new store, and new servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which scenes to play, and where."""

    seed: int = 1
    numbers: Sequence[int] = ()
    servers: int = 3
    jobs: int = 2
    patience: float = 5.0
    """Seconds after which a reader has to know what became of a run, beside the lease."""
    is_short: bool = False
    """Whether scenes are as short as those of the suite."""
    outage: str = ""
    """What fails in place of a process; empty for kills."""


@dataclass(slots=True)
class Totals:
    """What came of all scenes."""

    scenes: int = 0
    cutting: int = 0
    """Scenes in which the kill cut a run off."""
    counts: Counter[str] = field(default_factory=Counter[str])
    by_moment: Counter[str] = field(default_factory=Counter[str])
    cutting_by_moment: Counter[str] = field(default_factory=Counter[str])
    waits: list[float] = field(default_factory=list[float])
    recoveries: list[float] = field(default_factory=list[float])
    failures: list[Outcome] = field(default_factory=list[Outcome])
    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of the processors that the servers used."""

    def add(self, outcome: Outcome) -> None:
        moment = outcome.plan.moment
        self.scenes += 1
        self.cutting += outcome.cut > 0
        self.by_moment[moment] += 1
        self.cutting_by_moment[moment] += outcome.cut > 0
        for name in ("runs", "cut", "readings", "events", "payments"):
            self.counts[name] += getattr(outcome, name)
        self.waits += outcome.waits
        self.recoveries.append(outcome.recovery)
        if outcome.wrong:
            self.failures.append(outcome)

    @property
    def share(self) -> float:
        """The share of the kills that cut a run off."""
        return self.cutting / max(1, self.scenes)

    def find_wait(self, share: float) -> float:
        waits = sorted(self.waits) or [0.0]
        return waits[min(len(waits) - 1, int(share * len(waits)))]


def _ignore(outcome: Outcome) -> None:
    """Take no notice of a scene."""


async def play_all(
    options: Options,
    needs: Backends,
    forks: ForkServer,
    notify: Callable[[Outcome], None] = _ignore,
) -> Totals:
    """Play all scenes; `notify` gets the outcome of each."""
    totals = Totals()
    numbers = iter(options.numbers)
    start = monotonic()

    def take(outcome: Outcome) -> None:
        totals.add(outcome)
        notify(outcome)

    play = _play_outages if options.outage else _play_some
    async with asyncio.TaskGroup() as tasks:
        for _ in range(options.jobs):
            tasks.create_task(play(options, needs, forks, numbers, take, totals))
    totals.seconds = monotonic() - start
    return totals


async def _play_some(
    options: Options,
    needs: Backends,
    forks: ForkServer,
    numbers: Iterator[int],
    take: Callable[[Outcome], None],
    totals: Totals,
) -> None:
    """Play scenes one after the other, as long as there are any."""
    number = next(numbers, None)
    while number is not None:
        with tempfile.TemporaryDirectory(prefix="kills-") as name:
            folder = Path(name)
            settings = await needs.make_place(folder)
            world = World(forks, folder, settings, options.servers)
            await world.start()
            try:
                for _ in range(SCENES_PER_WORLD):
                    plan = draw_plan(
                        *(options.seed, number),
                        servers=options.servers,
                        pace=needs.pace,
                        is_short=options.is_short,
                    )
                    patience = options.patience + needs.find_lease()
                    outcome = await Scene(world, plan, patience=patience).play()
                    if outcome.wrong:
                        outcome.evidence["log"] = world.read_log()
                    take(outcome)
                    if (number := next(numbers, None)) is None:
                        break
            finally:
                world.stop()
                totals.processor += world.seconds


async def _play_outages(
    options: Options,
    needs: Backends,
    forks: ForkServer,
    numbers: Iterator[int],
    take: Callable[[Outcome], None],
    totals: Totals,
) -> None:
    """Play scenes one after the other: what fails is one for all servers."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        world = World(forks, folder, await needs.make_place(folder), options.servers)
        async with failing_world(world, needs, folder) as network:
            for number in numbers:
                scene = OutageScene(
                    *(world, build_plan(number), needs, network, OUTAGES[options.outage]),
                    seed=options.seed,
                    length=SHORT if options.is_short else LONG,
                )
                outcome = await scene.play()
                if outcome.wrong:
                    outcome.evidence["log"] = world.read_log()
                take(outcome)
        totals.processor += world.seconds


def write_evidence(outcome: Outcome, folder: Path) -> Path:
    """Write all that is known of a scene that went wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"scene-{outcome.plan.number}.json"
    path.write_text(json.dumps(outcome.describe(), indent=1, default=str))
    return path
