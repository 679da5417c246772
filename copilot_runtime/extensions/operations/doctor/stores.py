"""Checks of stores and of connections between servers: schemas, message broker, clocks."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from copilot_runtime.app.loading import list_private_state
from copilot_runtime.base.errors import CopilotError, StoreFailed
from copilot_runtime.base.formatting import format_count
from copilot_runtime.extensions.access.extension import build_counters
from copilot_runtime.extensions.cluster.extension import build_carrier
from copilot_runtime.extensions.operations.doctor import Finding, good, problem, warning
from copilot_runtime.extensions.operations.places import (
    Place,
    check_writable,
    find_threads,
    open_snapshot,
)
from copilot_runtime.extensions.operations.schemas import Schema, SchemaStatus, list_schemas
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.storage.storage import open_storage
from copilot_runtime.threads.postgres.schema import LEASE
from copilot_runtime.threads.url import build_store

_MOST_DRIFT = 2.0
"""Maximum difference in seconds between clocks."""
_HOUR = 3600


async def check_schemas(settings: Settings) -> Sequence[Finding]:
    """Check that each store is reachable and writable, and has a supported version.

    A problem of several stores, such as an unavailable database, is reported once.
    """
    statuses = await asyncio.gather(*map(_inspect, list_schemas(settings)))
    first = {status.problem: status for status in reversed(statuses) if status.problem}
    found: list[Finding] = []
    for status in statuses:
        if first.get(status.problem, status) is status:
            others = [
                one.name
                for one in statuses
                if status.problem and one.problem == status.problem and one is not status
            ]
            found.append(_describe_schema(status, others))
    if settings.threads.partition(":")[0] == "memory":
        hint = "Set threads to sqlite:PATH or postgresql://... unless they may be lost."
        found.insert(0, warning("threads", "They are in memory, and end with the server.", hint))
    return found


async def _inspect(schema: Schema) -> SchemaStatus:
    """Return the status of a schema; a read-only store counts as unusable."""
    status = await schema.inspect()
    if status.is_usable and not schema.place.is_sqlite:
        try:
            await check_writable(schema.place)
        except CopilotError as error:
            hint = error.hint or ""
            return replace(status, state="unusable", problem=error.message, way_out=hint)
    return status


def _describe_schema(status: SchemaStatus, others: Sequence[str]) -> Finding:
    match status.state:
        case "current":
            return good(status.name, f"{status.address}, version {status.version}")
        case "new":
            return good(status.name, f"{status.address} is made when it is needed")
        case "old":
            text = f"{status.address} is of version {status.version}, and {status.newest} is new."
            return warning(
                status.name,
                text,
                "The next server migrates it; so does `copilot-runtime operate migrate`.",
            )
        case "later" | "unusable":
            more = f" The same goes for {', '.join(others)}." if others else ""
            return problem(status.name, f"{status.problem}{more}", status.way_out)


async def check_carrier(settings: Settings) -> Sequence[Finding]:
    """Check the connection to other processes by the message broker."""
    if settings.carrier == "none" or settings.threads.partition(":")[0] == "memory":
        return []
    store = build_store(settings.threads)
    if store.shared_file is not None and not store.shared_file.exists():
        return []  # no server has run here
    if (carrier := build_carrier(settings, store)) is None:
        return []
    kind = type(carrier).__name__.removesuffix("Carrier")
    if kind == "Postgres" and not await _is_reachable(find_threads(settings)):
        return []  # the check of the stores reports it
    async with aclosing(carrier):
        await carrier.open(f"doctor{token_hex(4)}", _ignore, _ignore)
    return [good("carrier", f"messages go by {kind}")]


async def check_sharing(settings: Settings) -> Sequence[Finding]:
    """Check whether several processes would keep limits or data separately."""
    return [warning(*state) for state in list_private_state(settings)]


async def check_limit_store(settings: Settings) -> Sequence[Finding]:
    """Check that the shared limit store is reachable and counts."""
    from copilot_runtime.extensions.access.limits.counters import CountersFailed

    if (counters := build_counters(settings)) is None:
        return []
    async with aclosing(counters):
        try:
            await counters.read("doctor")
            await counters.enter("doctor", token_hex(4), 1000, 0.001)
        except CountersFailed as error:
            hint = "Check that it is running, and the address, user and password in limits.store."
            text = f"The store of limits.store does not count: {error}".rstrip(".")
            return [problem("limits", f"{text}.", hint)]
        if settings.limits.find_longest() > _HOUR and await counters.find_persistence() is False:
            text = "The Redis of limits.store is not persistent: a restart resets"
            hint = "Set `appendonly yes` in its settings."
            return [warning("limits", f"{text} all limits.", hint)]
    return [good("limits", "all processes share the counters in Redis")]


def _ignore(*_: object) -> None:
    """Ignore a message: other processes send none to this one."""


async def check_objects(settings: Settings) -> Sequence[Finding]:
    """Check that the storage of knowledge is reachable."""
    address = settings.knowledge.address
    if address in ("", "memory"):
        return []
    async with aclosing(open_storage(address)) as storage:
        await storage.find_etags("doctor")
    return [good("knowledge", f"{address.partition('?')[0]} can be read")]


async def check_vectors(settings: Settings) -> Sequence[Finding]:
    """Check that the vector database is reachable and can search."""
    if not settings.knowledge.vector_database:
        return []
    place = Place("vectors", url=settings.knowledge.vector_database)
    query = "SELECT installed_version, default_version FROM pg_available_extensions"
    async with open_snapshot(place) as db:
        rows = await db.fetch(f"{query} WHERE name = 'vector'")
    if not rows:
        hint = "Install pgvector on the machine of the database."
        return [problem("vectors", f"{place.describe()} has no extension 'vector'.", hint)]
    [(installed, available)] = rows
    text = f"{place.describe()}, pgvector {installed or available}"
    return [good("vectors", text if installed else f"{text}, which the first server adds")]


async def check_clock(settings: Settings) -> Sequence[Finding]:
    """Compare the clock of this machine with that of the database: leases depend on both."""
    place = None if settings.threads.partition(":")[0] == "memory" else find_threads(settings)
    if place is None or place.path is not None:
        return [good("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))]
    if not await _is_reachable(place):
        return []  # the check of the stores reports it
    drift = abs(await _read_clock(place) - time.time())
    text = f"{drift:.1f} seconds between this machine and the database"
    hint = "Let both keep time by NTP: timedatectl."
    if drift >= LEASE:
        return [problem("clock", text, hint)]
    return [warning("clock", text, hint) if drift > _MOST_DRIFT else good("clock", text)]


async def _is_reachable(place: Place | None) -> bool:
    """Return `True` if a database answers."""
    if place is None:
        return True
    try:
        async with open_snapshot(place):
            return True
    except StoreFailed:
        return False


async def _read_clock(place: Place) -> float:
    async with open_snapshot(place) as db:
        [(seconds,)] = await db.fetch("SELECT extract(epoch FROM clock_timestamp())::float8")
    return seconds


async def check_audit(settings: Settings) -> Sequence[Finding]:
    """Check the integrity of the audit log."""
    if not settings.audit.file or not Path(settings.audit.file).exists():  # noqa: ASYNC240  # quick
        return []
    from copilot_runtime.extensions.access.audit.verify import NO_KEY, verify

    # in a thread: of a large one, all other checks would wait until their time is over
    found = await asyncio.to_thread(verify, Path(settings.audit.file), settings.audit.key)
    if found.problems:
        hint = "`copilot-runtime operate audit verify` lists all that is wrong with it."
        return [problem("audit log", found.problems[0], hint)]
    lines = f"{format_count(found.lines, 'line')}, unchanged"
    if not settings.audit.key:
        hint = "Set audit.key to a secret, and begin a new file: it fits no line from before."
        text = f"{lines}. {NO_KEY}"
        return [warning("audit log", text, hint)]
    return [good("audit log", lines)]
