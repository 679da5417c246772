"""`copilot-runtime operate threads`: list, export, import, assign and expire stored threads."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.base.formatting import format_count
from copilot_runtime.cli.program import ProgramOption, load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.app.extension import Extension
    from copilot_runtime.config.settings import CoreSettings
    from copilot_runtime.threads.export import ImportProgress
    from copilot_runtime.threads.store import DeadRun, Thread, ThreadStore

threads = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_PROGRESS_EVERY = 100
"""Number of threads between two updates of the progress."""

_MOST_DAYS = 36500
"""Maximum age in days: dates before year 1 do not exist."""

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
    """List, export, import, assign and expire stored threads.

    \b
    copilot-runtime operate threads list
    copilot-runtime operate threads export > threads.jsonl
    copilot-runtime operate threads import threads.jsonl --store postgresql://localhost/app
    copilot-runtime operate threads assign --to ann
    copilot-runtime operate threads expire --days 90
    copilot-runtime operate threads list --program main:runtime

    The thread store is that of copilot.yml and the environment, of --store, or of the program
    that --program names. These commands may be used while servers run.
    """


@threads.command("list")
def show(
    owner: Annotated[str | None, typer.Option(help="Only threads of this user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only threads of this agent.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived threads.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of threads.")] = 50,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """List threads, one a line: time of last use, owner, id, agent, name.

    \b
    copilot-runtime operate threads list --owner ann
    copilot-runtime operate threads list --agent poet --archived --limit 1000 | cut -f 3

    Threads are listed with the latest first, and no more than --limit of them; if there are older
    ones, the last line says so, on stderr. A terminal gets a table, and a pipe or a file lines
    without a head, with tabs.
    """

    from copilot_runtime.threads.listing import list_latest

    settings = load_command_settings(program, config, has_notice=store is None)

    async def work(threads_store: "ThreadStore") -> None:
        lines = _ThreadLines()
        latest = await list_latest(
            threads_store, limit + 1, owner=owner, agent=agent, archived=archived
        )
        for thread in latest[:limit]:
            lines.add(thread)
        lines.finish()
        if len(latest) > limit:
            _say("There are older threads than these: --limit lists more.")

    _with_store(store, settings, work)


@threads.command("export")
def write_out(
    file: Annotated[
        Path | None, typer.Argument(help="Output file; - or omitted: standard output.")
    ] = None,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Write all threads as JSON Lines: a line for each thread, and a line for each of its runs.

    \b
    copilot-runtime operate threads export threads.jsonl
    copilot-runtime operate threads export | gzip > threads.jsonl.gz
    """
    from copilot_runtime.threads.export import export_threads

    settings = load_command_settings(program, config, has_notice=store is None)

    with _file(file, "wb") or nullcontext(sys.stdout.buffer) as out:

        async def work(threads_store: "ThreadStore") -> None:
            count = 0
            try:
                async with aclosing(export_threads(threads_store)) as lines:
                    async for line in lines:
                        out.write(line + b"\n")
                        count += line.startswith(b'{"type":"thread"')
                        _progress(count)
                out.flush()
            finally:
                _record_command(settings, "threads.export", f"{count} to {_name_place(file)}")
            _say(f"Exported {format_count(count, 'thread')}.")

        _with_store(store, settings, work)


@threads.command("import")
def read_in(
    file: Annotated[
        Path | None, typer.Argument(help="Input file; - or omitted: standard input.")
    ] = None,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Import threads from the output of `export`. Runs that are already stored are skipped.

    \b
    copilot-runtime operate threads import threads.jsonl
    gunzip -c threads.jsonl.gz | copilot-runtime operate threads import --store sqlite:other.db

    The whole file is validated before anything is changed. An error names the invalid line.
    """
    from copilot_runtime.threads.export import ImportProgress, import_threads, parse_export

    settings = load_command_settings(program, config, has_notice=store is None)
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
                _say(f"{_describe(imported)} before an error.")
                raise
            finally:
                subject = f"{imported.threads} with {imported.runs} new runs"
                _record_command(settings, "threads.import", f"{subject} from {_name_place(file)}")
            _say(f"{_describe(imported)}.")

        _with_store(store, settings, work, new=True)


@threads.command()
def assign(
    to: Annotated[str, typer.Option(help="The new owner.")],
    source: Annotated[
        str,
        typer.Option(
            "--from", help="The current owner, as shown by `list`. Default: threads without owner."
        ),
    ] = "",
    tenant: Annotated[str, typer.Option(help="Tenant of the new owner.")] = "",
    thread: Annotated[
        list[str] | None, typer.Option(help="Only the thread with this id; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list these threads.")] = False,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Assign threads to a user, such as those from before authentication was enabled.

    \b
    copilot-runtime operate threads assign --to ann --dry-run
    copilot-runtime operate threads assign --to ann --tenant acme --thread 4f1c --thread 9b7e
    copilot-runtime operate threads assign --from ann --to ann --tenant acme

    Nothing is changed if one of them has an active run. Archived threads are included; a thread
    whose id the user already has is skipped and reported.
    """
    from copilot_runtime.threads.listing import Assignment

    settings = load_command_settings(program, config, has_notice=store is None)
    plan = Assignment(source, _build_owner(to, tenant), thread or ())
    if plan.owner == source:
        raise ConfigurationFailed(
            f"{source!r} has these threads already.", hint="Give another user with --to."
        )

    async def work(threads_store: "ThreadStore") -> None:
        if dry_run:
            lines = _ThreadLines()
            async with aclosing(plan.list_threads(threads_store)) as found:
                async for one in found:
                    lines.add(one)
            count = lines.finish()
            _say(f"Would give {format_count(count, 'thread')} to {plan.owner!r}.")
            return
        try:
            async with aclosing(plan.carry_out(threads_store)) as steps:
                async for count in steps:
                    _progress(count)
        finally:
            for id in plan.conflicts:
                _say(f"Left {id!r}: {plan.owner!r} has a thread with this id.")
            _say(f"Gave {format_count(plan.count, 'thread')} to {plan.owner!r}.")
            if plan.count:
                subject = f"{plan.count} of {source!r} to {plan.owner!r}"
                _record_command(settings, "threads.assign", subject)

    _with_store(store, settings, work)


@threads.command()
def expire(
    days: Annotated[
        float,
        typer.Option(min=0, max=_MOST_DAYS, help="Delete threads unused for this many days."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list these threads.")] = False,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete threads that were not used for a number of days, with their files.

    Threads with an active run are not deleted.

    \b
    copilot-runtime operate threads expire --days 90 --dry-run
    copilot-runtime operate threads expire --days 90
    """

    settings = load_command_settings(program, config, has_notice=store is None)

    async def work(threads_store: "ThreadStore") -> None:
        before = datetime.now(UTC) - timedelta(days=days)
        if dry_run:
            count = await _show_older(threads_store, before)
            _say(f"Would delete {format_count(count, 'thread')}.")
            return
        gone = await threads_store.expire(before)
        if gone:
            _record_command(settings, "threads.expire", f"{gone} unused for {days:g} days")
        _say(f"Deleted {format_count(gone, 'thread')}.")
        files = 0
        if store in (None, settings.threads):  # no other one tells which threads still exist
            for extension in _load_extensions():
                files += await extension.expire_files(settings, threads_store, before)
        if files:
            _say(f"Deleted {format_count(files, 'file')} of deleted threads.")

    _with_store(store, settings, work)


def _load_extensions() -> "Sequence[Extension]":
    from copilot_runtime.app.loading import load_extensions

    return load_extensions()


def _record_command(settings: "CoreSettings", action: str, subject: str) -> None:
    for extension in _load_extensions():
        extension.record_command(settings, action, subject)


def _record_dead_run(settings: "CoreSettings", run: "DeadRun") -> None:
    for extension in _load_extensions():
        extension.record_dead_run(settings, run)


def _name_place(file: Path | None) -> str:
    """Return a file's name for the audit log; standard input and output are called a pipe."""
    return "a pipe" if file is None or str(file) == "-" else repr(str(file))


def _build_owner(user: str, tenant: str) -> str:
    """Return the thread owner for a user of a tenant. Raises `ConfigurationFailed`."""
    from copilot_runtime.api.identity import TENANT_PREFIX, Identity, is_tenant
    from copilot_runtime.threads.validation import check_owner

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
        check_owner("user", owner)
    except Misuse as error:
        raise ConfigurationFailed(error.message, hint=error.hint) from None
    return owner


def _with_store(
    address: str | None,
    settings: "CoreSettings",
    work: Callable[["ThreadStore"], Awaitable[None]],
    *,
    new: bool = False,
) -> None:
    """Run an operation with the store at an address, or that of the settings.

    Only a `new` store may create a file.
    """
    from copilot_runtime.threads.sqlite import SqliteThreads
    from copilot_runtime.threads.url import build_store

    address = address or settings.threads
    if address.partition(":")[0] == "memory":
        raise ConfigurationFailed(
            "The threads are in the memory of a server, where no other program can read them.",
            hint="Set threads to sqlite:PATH or postgresql://..., or give --store.",
        )

    store = build_store(address)
    if isinstance(store, SqliteThreads) and not new and not store.path.exists():
        raise ConfigurationFailed(
            f"There is no file {str(store.path)!r}.", hint="Give --store, such as sqlite:PATH."
        )

    store.on_dead_run = partial(_record_dead_run, settings)

    async def open_store() -> None:
        async with aclosing(store):
            await store.open()
            await work(store)

    asyncio.run(open_store())


def _file(file: Path | None, mode: str) -> AbstractContextManager[BinaryIO] | None:
    """Open a file in a binary mode, or return `None` for standard input or output."""
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
    """Print the threads without a run that were last used before a time. Return their number."""
    from copilot_runtime.threads.listing import list_threads

    lines = _ThreadLines()
    async with aclosing(list_threads(store, None)) as found:
        async for thread in found:
            if thread.updated_at >= before:
                continue
            if all(run.ended for run in await store.runs(thread.key)):
                lines.add(thread)
    return lines.finish()


class _ThreadLines:
    """Prints threads: as a table with a head in a terminal, as tab-separated lines in a pipe."""

    def __init__(self) -> None:
        self._rows: list[Sequence[str]] = []
        self._count = 0
        self._is_table = _is_terminal()

    def add(self, thread: "Thread") -> None:
        self._count += 1
        if self._is_table:
            self._rows.append(_list_fields(thread))
        else:
            typer.echo("\t".join(_list_fields(thread)))

    def finish(self) -> int:
        """Print the table, and return the number of threads."""
        if self._is_table:
            from copilot_runtime.cli.output import show_table

            head = ("USED", "OWNER", "ID", "AGENT", "NAME")
            show_table(head, self._rows, "There are no threads.")
        return self._count


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _list_fields(thread: "Thread") -> Sequence[str]:
    """Return the columns of a thread, without terminal control characters."""
    fields = (thread.key.owner, thread.key.id, thread.agent, thread.name or "")
    words = (
        "".join(letter if letter.isprintable() else " " for letter in field) for field in fields
    )
    return [thread.updated_at.isoformat(timespec="seconds"), *words]


def _progress(count: int) -> None:
    """Show progress in a terminal; elsewhere log only the final result."""
    if count % _PROGRESS_EVERY == 0 and sys.stderr.isatty():
        typer.echo(f"\r{count} threads", err=True, nl=False)


def _describe(imported: "ImportProgress") -> str:
    threads, runs = format_count(imported.threads, "thread"), format_count(imported.runs, "new run")
    return f"Read {threads} with {runs}"


def _say(text: str) -> None:
    start = "\r" if sys.stderr.isatty() else ""
    typer.echo(f"{start}{text}", err=True)
