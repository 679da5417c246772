"""What is done to the runs of threads in PostgreSQL, each function within a transaction.

Each may be done twice, if the connection breaks when nobody knows whether it had been done.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from copilot_runtime.events import Event, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, RunInput
from copilot_runtime.messages import Message
from copilot_runtime.threads.codec import decode, encode
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.message_ids import collect_names, index_by_name
from copilot_runtime.threads.postgres.schema import LOCKS, hash_key
from copilot_runtime.threads.recovery import complete_log, prepend_head
from copilot_runtime.threads.rows import build_new_rows, build_run, from_datetime
from copilot_runtime.threads.store import Segment, StoredRun, Thread, ThreadKey
from copilot_runtime.threads.validation import busy

Place = tuple[int, int]
"""The numbers of a thread and of one of its runs."""


async def begin_run(
    db: Any, *, key: ThreadKey, run: RunInput, now: int, server: int
) -> tuple[int, Sequence[Message]]:
    """Add a run, whose number is `now`, and its thread if need be. Raises `ThreadBusy`.

    Returns the number of the thread, and the messages that are new in it.
    """
    agent = run.agent or DEFAULT_AGENT
    # whoever comes second waits here for the end of the first one's transaction
    thread, running, other = await db.fetchrow(
        "INSERT INTO copilot_threads AS old"
        " (digest, owner, thread, agent, created, updated, last_run)"
        " VALUES ($1, $2, $3, $4, $5, $5, $5) ON CONFLICT (digest)"
        " DO UPDATE SET updated = excluded.updated, last_run = excluded.last_run"
        " RETURNING id, running, server",
        hash_key(key),
        *key,
        agent,
        now,
    )
    if running == now and other == server:  # it had been done
        [head] = await _log(db, (thread, now))
        return thread, list(head.messages) if isinstance(head, RunStarted) else []
    if running is not None:
        if other == server or await _is_alive(db, other):
            raise busy(key)
        await _end_dead_run(db, (thread, running), now=now)
    await db.execute(
        "UPDATE copilot_threads SET running = $2, server = $3 WHERE id = $1", thread, now, server
    )
    named = index_by_name(run.messages)
    rows = await db.fetch(
        "INSERT INTO copilot_known SELECT $1, * FROM unnest($2::text[])"
        " ON CONFLICT DO NOTHING RETURNING name",
        thread,
        list(named),
    )
    added = {row[0] for row in rows}
    new = [message for name, message in named.items() if name in added]
    head = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=new)
    await db.execute(
        "INSERT INTO copilot_runs (thread, id, key, run_id, agent, began, log)"
        " VALUES ($1, $2, $3, $4, $5, $2, $6)",
        thread,
        now,
        run.log_id,
        run.run_id,
        agent,
        encode([head]),
    )
    return thread, new


async def undo_begin(db: Any, *, key: ThreadKey, run: int) -> None:
    """Forget a run that nobody waited for, and its thread if it has no other."""
    thread = await db.fetchval(
        "SELECT id FROM copilot_threads WHERE digest = $1 AND running = $2 FOR UPDATE",
        hash_key(key),
        run,
    )
    if thread is None:
        return
    names = collect_names(await _log(db, (thread, run)))
    await db.execute("DELETE FROM copilot_runs WHERE thread = $1 AND id = $2", thread, run)
    await db.execute(
        "DELETE FROM copilot_known WHERE thread = $1 AND name = ANY($2)", thread, list(names)
    )
    await db.execute(
        "UPDATE copilot_threads SET running = NULL, server = NULL WHERE id = $1", thread
    )
    await db.execute(
        "DELETE FROM copilot_threads WHERE id = $1 AND name IS NULL"
        " AND NOT EXISTS (SELECT 1 FROM copilot_runs WHERE thread = $1)",
        thread,
    )


async def write_segments(db: Any, *, segments: Sequence[tuple[int, Place, Segment]]) -> None:
    """Add to logs, each segment by its time; what belongs to a deleted run goes nowhere."""
    rows = [
        (*place, now, encode(segment.events))
        for now, place, segment in segments
        if segment.whole is None
    ]
    if rows:
        await db.execute(
            "INSERT INTO copilot_events (thread, run, number, data)"
            " SELECT new.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])"
            " AS new (thread, run, number, data) JOIN copilot_threads ON id = new.thread"
            " ON CONFLICT DO NOTHING",
            *map(list, zip(*rows, strict=True)),
        )
    # in one order everywhere, so that no two servers wait for each other
    for now, place, segment in sorted(segments, key=lambda row: row[1]):
        if segment.whole is not None:
            await _end(db, place, segment.whole, compact(segment.whole), now=now)


async def end_dead_runs(db: Any, *, now: int, server: int) -> int:
    """End all runs of servers that died. Return how many."""
    rows = await db.fetch(
        "SELECT DISTINCT server FROM copilot_threads WHERE running IS NOT NULL AND server <> $1",
        server,
    )
    count = 0
    for (other,) in rows:
        if await _is_alive(db, other):
            continue
        places = await db.fetch(
            "SELECT id, running FROM copilot_threads WHERE running IS NOT NULL AND server = $1"
            " ORDER BY id FOR UPDATE SKIP LOCKED",
            other,
        )
        for thread, run in places:
            await _end_dead_run(db, (thread, run), now=now)
        count += len(places)
    return count


async def read_runs(db: Any, key: ThreadKey) -> Sequence[StoredRun]:
    """Return the runs of a thread, the oldest first, as they were at one moment."""
    rows = await db.fetch(
        "SELECT runs.thread, runs.id, key, run_id, runs.agent, began, ended, log, number, data"
        " FROM copilot_threads JOIN copilot_runs AS runs ON runs.thread = copilot_threads.id"
        " LEFT JOIN copilot_events AS events ON events.thread = runs.thread AND run = runs.id"
        " WHERE digest = $1 ORDER BY began, runs.id, number",
        hash_key(key),
    )
    return [_run([*same]) for _, same in groupby(rows, itemgetter(1))]


async def put_thread(db: Any, thread: Thread, *, runs: Iterable[StoredRun], now: int) -> int:
    """Add a thread, or take over its head if that is later than ours, and the runs we lack."""
    updated = from_datetime(thread.updated_at)
    number = await db.fetchval(
        "INSERT INTO copilot_threads AS old"
        " (digest, owner, thread, agent, name, archived, created, updated, last_run)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (digest) DO UPDATE SET"
        " name = CASE WHEN old.updated < excluded.updated THEN excluded.name ELSE old.name END,"
        " archived = CASE WHEN old.updated < excluded.updated THEN excluded.archived"
        " ELSE old.archived END, updated = greatest(old.updated, excluded.updated),"
        " last_run = greatest(old.last_run, excluded.last_run) RETURNING id",
        hash_key(thread.key),
        *thread.key,
        thread.agent,
        thread.name,
        thread.archived,
        from_datetime(thread.created_at),
        updated,
        thread.last_run_at and from_datetime(thread.last_run_at),
    )
    return await _put_runs(db, number, runs=runs, now=now)


async def _put_runs(db: Any, thread: int, *, runs: Iterable[StoredRun], now: int) -> int:
    """Add runs of another store that are not here yet. Return how many those were."""
    rows = await db.fetch("SELECT id, key, began FROM copilot_runs WHERE thread = $1", thread)
    new = [*build_new_rows(runs, rows, now)]
    for row, names in new:
        await db.execute(
            "INSERT INTO copilot_runs (thread, id, key, run_id, agent, began, ended, log)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            *(thread, *row),
        )
        await _remember(db, thread, names)
    return len(new)


async def _is_alive(db: Any, server: int) -> bool:
    """Say whether a server runs: then it holds its lock. Else nobody gets it until we are done."""
    return not await db.fetchval("SELECT pg_try_advisory_xact_lock($1, $2)", LOCKS, server)


async def _end(
    db: Any, place: Place, whole: Sequence[Event], short: Sequence[Event], *, now: int
) -> None:
    """Keep the shortened log of a run that has ended, and the names of what it made."""
    # the thread first, as everywhere, so that no two servers wait for each other
    freed = "UPDATE copilot_threads SET running = NULL, server = NULL"
    await db.execute(f"{freed} WHERE id = $1 AND running = $2", *place)
    ending = await db.fetchval(
        "UPDATE copilot_runs SET ended = $3, log = $4 WHERE thread = $1 AND id = $2 RETURNING 1",
        *place,
        now,
        encode(short),
    )
    if ending is None:  # deleted meanwhile
        return
    await db.execute("DELETE FROM copilot_events WHERE thread = $1 AND run = $2", *place)
    await _remember(db, place[0], collect_names(whole))


async def _end_dead_run(db: Any, place: Place, *, now: int) -> None:
    log = complete_log([], await _log(db, place))
    await _end(db, place, log, log, now=now)


async def _log(db: Any, place: Place) -> Sequence[Event]:
    """Return what was written so far of a run, or its whole log if it has ended."""
    rows = await db.fetch(
        "SELECT -1 AS number, log AS data FROM copilot_runs WHERE thread = $1 AND id = $2"
        " UNION ALL SELECT number, data FROM copilot_events WHERE thread = $1 AND run = $2"
        " ORDER BY number",
        *place,
    )
    [head, *events] = [decode(data, _where(place, number)) for number, data in rows] or [[]]
    return prepend_head(head, [event for part in events for event in part])


def _run(rows: Sequence[Sequence[Any]]) -> StoredRun:
    """Return one run of its rows: one per segment, or one without."""
    thread, run, *row, log, _, _ = rows[0]
    place = (thread, run)
    events = [
        event
        for *_, number, data in rows
        if data is not None
        for event in decode(data, _where(place, number))
    ]
    return build_run(row, prepend_head(decode(log, _where(place)), events))


def _where(place: Place, number: int = -1) -> str:
    """Name a row as one finds it with `psql`."""
    if number < 0:
        return f"table 'copilot_runs', thread {place[0]}, id {place[1]}"
    return f"table 'copilot_events', thread {place[0]}, run {place[1]}, number {number}"


async def _remember(db: Any, thread: int, names: Iterable[str]) -> None:
    await db.execute(
        "INSERT INTO copilot_known SELECT $1, * FROM unnest($2::text[]) ON CONFLICT DO NOTHING",
        thread,
        sorted(names),
    )
