"""Runs the matrix in one server, and says what is wrong."""

import itertools
import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.extensions.access.matrix.check import (
    Finding,
    check_control,
    check_existence,
    check_live,
    check_operator,
    check_others,
    check_replay,
    check_stranger,
    check_tools,
    check_unscoped,
    look,
)
from tests.extensions.access.matrix.credentials import BAD, KINDS
from tests.extensions.access.matrix.doors import list_doors
from tests.extensions.access.matrix.rows import ROWS
from tests.extensions.access.matrix.world import World, build_world, settle

EACH = 3
"""Bad credentials at each door, unless all are tried; together, all of them are."""

PEOPLE = (("ben", "north"), ("ann", "south"))
"""Of Ann's tenant, and of her name."""

_TWICE = ("Route /copilot/",)
"""Doors that are also below the URL, and take long."""


@dataclass
class Report:
    """What was asked, and what is wrong; `doors` are those of the application."""

    doors: Sequence[str] = ()
    asked: dict[str, int] = field(default_factory=dict[str, int])
    findings: dict[str, list[Finding]] = field(default_factory=dict[str, list[Finding]])

    def add(self, part: str, found: Iterable[Finding], count: int = 1) -> None:
        self.asked[part] = self.asked.get(part, 0) + count
        self.findings.setdefault(part, []).extend(found)


async def run_matrix(path: Path, *, is_full: bool = False) -> Report:
    """Try every door: with all credentials and people, or with so many that each is tried."""
    report = Report()
    async with build_world(path) as world:
        with _silence():
            report.doors = list_doors(world.runtime, world.app)
            await settle(world)
            doors = [door for door in ROWS if is_full or not door.startswith(_TWICE)]
            report.add("Ann", await check_control(world, ROWS), len(ROWS))
            report.add("live", await check_live(world), 3)
            before = await look(world)
            await _try_strangers(world, report, is_full=is_full)
            await _try_people(world, report, doors, is_full=is_full)
            report.add("changes", _compare(before, await look(world)), len(before))
    return report


async def _try_strangers(world: World, report: Report, *, is_full: bool) -> None:
    every = itertools.cycle(BAD)
    for door, row in ROWS.items():
        if row.kind == "token" and not is_full:
            continue
        for credential in BAD if is_full else itertools.islice(every, EACH):
            report.add("strangers", await check_stranger(world, door, credential))


async def _try_people(world: World, report: Report, doors: Sequence[str], *, is_full: bool) -> None:
    unscoped = await world.key("ann", "north", scopes=())
    for door in doors:
        report.add("replays", await check_replay(world, door), 2)
        report.add("scopes", await check_unscoped(world, door, unscoped))
    for number, (name, tenant) in enumerate(PEOPLE):
        sent: list[bytes] = []
        kinds = [kind for kind in KINDS if kind != "hook" or tenant == "north"]
        for changes, (at, kind) in itertools.product((False, True), enumerate(kinds)):
            some = [
                door
                for turn, door in enumerate(doors)
                if ROWS[door].changes is changes
                # else each door is tried by each person, and by each kind of credential in turn
                and (is_full or (turn + number) % len(kinds) == at)
            ]
            found = await check_others(world, some, kind, name, tenant, sent)
            report.add("people", found, len(some))
    report.add("tools", await check_tools(world))
    report.add("operator", await check_operator(world, doors), len(doors))
    report.add("existence", await check_existence(world, doors), 2 * len(doors))


def _compare(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Finding]:
    for door, text in before.items():
        if text != after[door]:
            yield Finding(door, "somebody", f"changed it from\n{text}\nto\n{after[door]}")


@contextmanager
def _silence() -> Generator[None]:
    """Log nothing: thousands of refusals are expected."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
