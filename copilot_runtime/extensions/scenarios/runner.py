"""Play scenarios in parallel, with each of their models and with repetitions.

With `--offline`, connections of this process are refused, which proves that tests need none.
"""

import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from socket import AF_INET, AF_INET6
from time import monotonic
from typing import Any

from copilot_runtime.base.errors import NetworkError
from copilot_runtime.extensions.scenarios.attempt import Attempt, Player
from copilot_runtime.extensions.scenarios.files import Place
from copilot_runtime.extensions.scenarios.report import Report, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options that override the scenario files."""

    models: Sequence[str] = ()
    repeat: int | None = None
    pass_rate: float | None = None
    timeout: float | None = None
    parallel: int = 4
    """Maximum number of concurrent scenarios."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the scenarios."""

    done: int
    total: int
    failed: int
    name: str
    """Name of the scenario played last."""


async def run_scenarios(
    places: Sequence[Place],
    player: Player,
    options: RunOptions | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Play all scenarios and return the report; on cancellation, the report up to then."""
    options, start = options or RunOptions(), monotonic()
    results = [
        Result(place=_merge(place, options), model=model)
        for place in places
        for model in (options.models or place.scenario.models or (None,))
    ]
    slots = asyncio.Semaphore(options.parallel)
    total = sum(result.place.scenario.repeat for result in results if not result.is_skipped)
    done: list[Attempt] = []

    async def play(result: Result, number: int) -> None:
        async with slots:
            attempt = await player.play(result.place.scenario, result.model, number)
        result.attempts.append(attempt)
        done.append(attempt)
        if on_progress is not None:
            failed = sum(it.outcome != "passed" for it in done)
            on_progress(Progress(len(done), total, failed, result.place.scenario.name))

    tasks = [
        asyncio.create_task(play(result, number), name=result.place.scenario.name)
        for result in results
        if not result.is_skipped
        for number in range(1, result.place.scenario.repeat + 1)
    ]
    is_interrupted = False
    try:
        await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        is_interrupted = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    for result in results:
        result.attempts.sort(key=lambda attempt: attempt.number)
    return Report(results, is_interrupted=is_interrupted, seconds=monotonic() - start)


def _merge(place: Place, options: RunOptions) -> Place:
    """Return a scenario with the overrides of the options."""
    values = {
        "repeat": options.repeat,
        "pass_rate": options.pass_rate,
        "timeout": options.timeout,
    }
    update = {name: value for name, value in values.items() if value is not None}
    return replace(place, scenario=place.scenario.model_copy(update=update))


_EVENTS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}


class _Network:
    """Whether connections are refused. An audit hook cannot be removed."""

    is_refused = False
    is_watched = False


@contextmanager
def refuse_network() -> Generator[None]:
    """Refuse all connections over IPv4 and IPv6; Unix sockets still work.

    Connections that do not use Python's sockets, such as gRPC's, are not detected.
    """
    if not _Network.is_watched:
        sys.addaudithook(_refuse)
        _Network.is_watched = True
    _Network.is_refused = True
    try:
        yield
    finally:
        _Network.is_refused = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _Network.is_refused or event not in _EVENTS:
        return
    if event in ("socket.connect", "socket.sendto"):
        if arguments[0].family not in (AF_INET, AF_INET6):
            return
        address = ":".join(map(str, arguments[1][:2]))
    else:
        address = str(arguments[0])
    raise NetworkError(f"A connection to {address} was refused: --offline allows none.")
