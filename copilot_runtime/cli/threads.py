"""`copilot-runtime threads`: list, export, import, hand over and delete stored threads."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from copilot_runtime.errors import ConfigurationFailed, CopilotError

if TYPE_CHECKING:
    from copilot_runtime.threads.store import Thread, ThreadStore

threads = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_PROGRESS_EVERY = 100
"""How many threads are counted between two updates of the progress."""

_MOST_DAYS = 36500
"""A calendar has a beginning."""

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Store, such as sqlite:threads.db; default: the setting threads."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Settings file, instead of COPILOT_CONFIG or copilot.yml."),
]


@threads.callback()
def look_after() -> None:
    """List, export, import, hand over and delete stored threads.

    \b
    copilot-runtime threads list
    copilot-runtime threads export > threads.jsonl
    copilot-runtime threads import threads.jsonl --store postgresql://localhost/app
    copilot-runtime threads assign --to ann
    copilot-runtime threads expire --days 90

    These commands may be used while servers run.
    """


@threads.command("list")
def show(
    owner: Annotated[
        str | None, typer.Option(help="Only threads of this user, latest first.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only threads of this agent.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived threads.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most threads to list.")] = 50,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List threads, one a line: time of last use, owner, id, agent, name, separated by tabs.

    \b
    copilot-runtime threads list --owner ann
    copilot-runtime threads list --agent poet --archived --limit 1000 | cut -f 3

    Without --owner, the threads of all users are listed, oldest first.
    """

    from copilot_runtime.threads.listing import list_threads

    async def work(threads_store: "ThreadStore") -> None:
        left = limit
        async with aclosing(list_threads(threads_store, owner, agent)) as found:
            async for thread in found:
                if (thread.archived and not archived) or agent not in (None, thread.agent):
                    continue
                typer.echo(_line(thread))
                left -= 1
                if not left:
                    return

    _with_store(store, config, work)


@threads.command("export")
def write_out(
    file: Annotated[
        Path | None, typer.Argument(help="File to write; - or nothing is the standard output.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Write all threads as JSON Lines: a line for each thread, and a line for each of its runs.

    \b
    copilot-runtime threads export threads.jsonl
    copilot-runtime threads export | gzip > threads.jsonl.gz
    """
    from copilot_runtime.threads.export import export_threads

    with _file(file, "wb") or nullcontext(sys.stdout.buffer) as out:

        async def work(threads_store: "ThreadStore") -> None:
            count = 0
            async with aclosing(export_threads(threads_store)) as lines:
                async for line in lines:
                    out.write(line + b"\n")
                    count += line.startswith(b'{"type":"thread"')
                    _progress(count)
            out.flush()
            _say(f"Exported {count} threads.")

        _with_store(store, config, work)


@threads.command("import")
def read_in(
    file: Annotated[
        Path | None, typer.Argument(help="File to read; - or nothing is the standard input.")
    ] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Read threads that `export` wrote. Runs that the store has already are skipped.

    \b
    copilot-runtime threads import threads.jsonl
    gunzip -c threads.jsonl.gz | copilot-runtime threads import --store sqlite:other.db

    The whole file is checked before anything is changed. An error names the wrong line.
    """
    from copilot_runtime.threads.export import ImportProgress, import_threads, parse_export

    if whole := _file(file, "rb"):
        with whole as lines:
            for _ in parse_export(lines):
                pass
    with _file(file, "rb") or nullcontext(sys.stdin.buffer) as lines:

        async def work(threads_store: "ThreadStore") -> None:
            imported = ImportProgress(0, 0)
            try:
                async with aclosing(import_threads(threads_store, lines)) as steps:
                    async for imported in steps:
                        _progress(imported.threads)
            except CopilotError:
                _say(
                    f"Read {imported.threads} threads before an error; "
                    f"{imported.runs} runs were new."
                )
                raise
            _say(f"Read {imported.threads} threads; {imported.runs} of their runs were new.")

        _with_store(store, config, work, new=True)


@threads.command()
def assign(
    to: Annotated[str, typer.Option(help="User who gets them.")],
    source: Annotated[
        str,
        typer.Option(
            "--from", help="Owner whose threads these are, as `list` shows it; default: nobody."
        ),
    ] = "",
    tenant: Annotated[str, typer.Option(help="Tenant of the user who gets them.")] = "",
    thread: Annotated[
        list[str] | None, typer.Option(help="Only the thread with this id; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List these threads, and change none.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Give threads to a user, such as those from before anybody had to sign in.

    \b
    copilot-runtime threads assign --to ann --dry-run
    copilot-runtime threads assign --to ann --tenant acme --thread 4f1c --thread 9b7e
    copilot-runtime threads assign --from ann --to ann --tenant acme

    Nothing is changed while one of them is being answered. Archived ones are given, too; a thread
    whose id the user has already stays where it is, and is named.
    """
    from copilot_runtime.cli.audit import record_command
    from copilot_runtime.config import load_settings
    from copilot_runtime.threads.assignment import Assignment

    settings = load_settings(config)
    plan = Assignment(source, _build_owner(to, tenant), thread or ())
    if plan.owner == source:
        raise ConfigurationFailed(
            f"{source!r} has these threads already.", hint="Give another user with --to."
        )

    async def work(threads_store: "ThreadStore") -> None:
        if dry_run:
            count = 0
            async with aclosing(plan.list_threads(threads_store)) as found:
                async for one in found:
                    typer.echo(_line(one))
                    count += 1
            _say(f"Would give {count} threads to {plan.owner!r}.")
            return
        try:
            async with aclosing(plan.carry_out(threads_store)) as steps:
                async for count in steps:
                    _progress(count)
        finally:
            for id in plan.conflicts:
                _say(f"Left {id!r}: {plan.owner!r} has a thread with this id.")
            _say(f"Gave {plan.count} threads to {plan.owner!r}.")
            if plan.count:
                subject = f"{plan.count} of {source!r} to {plan.owner!r}"
                record_command(settings, "threads.assign", subject)

    _with_store(store, config, work)


@threads.command()
def expire(
    days: Annotated[
        float,
        typer.Option(min=0, max=_MOST_DAYS, help="Delete threads unused for this many days."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List these threads, and delete none.")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete threads that were not used for a number of days, and the files in them.

    Running answers are not deleted.

    \b
    copilot-runtime threads expire --days 90 --dry-run
    copilot-runtime threads expire --days 90
    """

    async def work(threads_store: "ThreadStore") -> None:
        before = datetime.now(UTC) - timedelta(days=days)
        if dry_run:
            count = await _show_older(threads_store, before)
            _say(f"Would delete {count} threads.")
            return
        gone = await threads_store.expire(before)
        _say(f"Deleted {gone} threads.")
        files = await _forget_files(threads_store, before, store, config)
        if files:
            _say(f"Deleted {files} files of threads that are no more.")

    _with_store(store, config, work)


def _build_owner(user: str, tenant: str) -> str:
    """Return the owner that a user of a tenant is. Raises `ConfigurationFailed`."""
    from copilot_runtime.errors import Misuse
    from copilot_runtime.identity import TENANT_PREFIX, Identity, is_tenant
    from copilot_runtime.threads.validation import check_id

    if tenant and not is_tenant(tenant):
        raise ConfigurationFailed(
            f"{tenant[:60]!r} cannot be a tenant.", hint="It has letters, digits and . _ -"
        )
    if not user or user.startswith(TENANT_PREFIX):
        raise ConfigurationFailed(
            f"{user[:60]!r} cannot be a user.", hint="Name the user with --to, and --tenant beside."
        )
    owner = Identity(user=user, tenant=tenant).owner or ""
    try:
        check_id("user", owner)
    except Misuse as error:
        raise ConfigurationFailed(error.message, hint=error.hint) from None
    return owner


async def _forget_files(
    threads_store: "ThreadStore", before: datetime, address: str | None, config: Path | None
) -> int:
    """Delete the files that people have attached in threads that are no more. Return how many.

    Only the store of the settings knows which threads live: files are not judged by another one.
    """
    from copilot_runtime.config import load_settings

    settings = load_settings(config)
    if not settings.knowledge.address or address not in (None, settings.threads):
        return 0
    from copilot_runtime.cli.knowledge import keep_events
    from copilot_runtime.knowledge import Knowledge

    knowledge = Knowledge(settings=settings.knowledge.model_copy(update={"sources": ()}))
    knowledge.threads = threads_store
    keep_events(knowledge, settings)
    async with aclosing(knowledge):
        return await knowledge.forget_old_files(before.timestamp())


def _with_store(
    address: str | None,
    config: Path | None,
    work: Callable[["ThreadStore"], Awaitable[None]],
    *,
    new: bool = False,
) -> None:
    """Do work with the store of an address, or of the settings. Only a `new` file may be made."""
    from copilot_runtime.config import load_settings
    from copilot_runtime.threads.sqlite import SqliteThreads
    from copilot_runtime.threads.url import build_store

    place = address or load_settings(config).threads
    if place.partition(":")[0] == "memory":
        raise ConfigurationFailed(
            "The threads are in the memory of a server, where no other program can read them.",
            hint="Set threads to sqlite:PATH or postgresql://..., or give --store.",
        )

    store = build_store(place)
    if isinstance(store, SqliteThreads) and not new and not store.path.exists():
        raise ConfigurationFailed(
            f"There is no file {str(store.path)!r}.", hint="Give --store, such as sqlite:PATH."
        )

    async def open_store() -> None:
        async with aclosing(store):
            await store.open()
            await work(store)

    asyncio.run(open_store())


def _file(file: Path | None, mode: str) -> AbstractContextManager[BinaryIO] | None:
    """Open a file in a binary mode, or return None for the standard input or output."""
    if file is None or str(file) == "-":
        return None
    try:
        return cast("BinaryIO", file.open(mode))
    except OSError as error:
        raise ConfigurationFailed(
            f"The file {str(file)!r} cannot be opened: {error.strerror}.",
            hint="Give another, or - for the standard input or output.",
        ) from error


async def _show_older(store: "ThreadStore", before: datetime) -> int:
    """Print the threads that were last used before a moment and have no run. Return how many."""
    from copilot_runtime.threads.listing import list_threads

    count = 0
    async with aclosing(list_threads(store, None)) as found:
        async for thread in found:
            if thread.updated_at >= before:
                continue
            if all(run.ended for run in await store.runs(thread.key)):
                typer.echo(_line(thread))
                count += 1
    return count


def _line(thread: "Thread") -> str:
    fields = (thread.key.owner, thread.key.id, thread.agent, thread.name or "")
    line = (
        "".join(letter if letter.isprintable() else " " for letter in field) for field in fields
    )
    return "\t".join([thread.updated_at.isoformat(timespec="seconds"), *line])


def _progress(count: int) -> None:
    """Show progress in a terminal; a log gets the end only."""
    if count % _PROGRESS_EVERY == 0 and sys.stderr.isatty():
        typer.echo(f"\r{count} threads", err=True, nl=False)


def _say(text: str) -> None:
    start = "\r" if sys.stderr.isatty() else ""
    typer.echo(f"{start}{text}", err=True)
