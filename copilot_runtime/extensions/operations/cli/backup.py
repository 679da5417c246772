"""The commands `copilot-runtime backup` and `restore`."""

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.progress import ProgressBar
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.access.audit.command import record_command
from copilot_runtime.extensions.program import load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.operations.backup import Progress
    from copilot_runtime.extensions.operations.backup.backup import BackupReport

WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PART",
        help="Leave out threads, plans, keys, events, audit, traces or knowledge.",
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--key-file", help="File with the secret by which the backup is signed."),
]

_SHORTEST_KEY = 16


def backup(
    file: Annotated[Path, typer.Argument(help="File to write; - is the standard output.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file, if there is one.")
    ] = False,
    without: WithoutOption = None,
    key_file: KeyOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Write all that a server keeps into one file: also while it runs.

    \b
    copilot-runtime backup monday.tar.gz
    copilot-runtime backup monday.tar.gz --program main:runtime
    copilot-runtime backup monday.tar.gz --without traces --without audit
    copilot-runtime backup - | ssh backups.example 'cat > monday.tar.gz'

    The stores are those of copilot.yml and the environment. A program with Settings(...) of its
    own has others: name it by --program.

    Threads, plans, API keys (their hashes), events, the audit log, traces, and all objects of
    knowledge: what the settings name, and what is in a file or a database. What is only in the
    memory of a server is in no backup, and neither are copilot.yml and files of your own.

    Each part is as it was at one moment. The file has its name only once it is whole, and only its
    owner may read it. A file that is there already is replaced by --force alone. What a backup to
    the same place has left that was killed (.monday.tar.gz.….part) is removed by the next one.

    --key-file signs it: who does not have the key can change nothing in it.
    """
    from copilot_runtime.extensions.operations.backup import write_backup
    from copilot_runtime.extensions.operations.backup.new_file import remove_stale_parts
    from copilot_runtime.extensions.operations.backup.sources import select_sources
    from copilot_runtime.extensions.operations.places import list_memory

    settings = load_command_settings(program, config)
    sources = select_sources(settings, without or [])
    target = sys.stdout.buffer if str(file) == "-" else file
    for part in remove_stale_parts(file):
        typer.echo(f"Removed '{part}', which a backup that was killed had left.", err=True)
    with _show_progress() as show:
        report = asyncio.run(
            write_backup(sources, target, show, force=force, key=_read_key(key_file))
        )
    typer.echo(f"Backed up {_describe(report)}.", err=True)
    if missing := [name for name in list_memory(settings) if name not in (without or [])]:
        typer.echo(
            f"Not in it, as only servers have them in memory: {', '.join(missing)}.", err=True
        )
    record_command(settings, "backup.create", str(file))


def restore(
    file: Annotated[Path, typer.Argument(help="File that `backup` wrote.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace everything that is there.")
    ] = False,
    without: WithoutOption = None,
    key_file: KeyOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Put a backup back into the stores of the settings, which may be others than before.

    \b
    copilot-runtime restore monday.tar.gz
    copilot-runtime restore monday.tar.gz --force --without audit
    COPILOT_THREADS=postgresql://db/app copilot-runtime restore monday.tar.gz

    A program with Settings(...) of its own has other stores than copilot.yml: name it by --program.

    So a team moves from a file of SQLite to PostgreSQL, or from a folder to S3, and back. Stop the
    servers first. Stores that are not empty are refused without --force.

    A part for which the settings name no place is refused: leave it out by --without. When some
    parts move elsewhere, those that stay where the backup found them are left as they are. So is an
    audit log that has all lines of the backup; --force does not shorten one.

    The whole file is checked before anything is changed, and all stores take what is new in the
    end, together: a backup that is cut off, changed, or of a later version changes nothing.
    Answers that were being given when the backup was made are ended as interrupted. Plans go on.
    """
    from copilot_runtime.extensions.operations.backup import restore_backup
    from copilot_runtime.extensions.operations.backup.sources import select_sources

    settings = load_command_settings(program, config)
    sources = select_sources(settings, without or [])
    with _show_progress() as show:
        report = asyncio.run(
            restore_backup(
                sources,
                file,
                show,
                force=force,
                key=_read_key(key_file),
                without=without or [],
            )
        )
    assert report.header is not None
    moment = datetime.fromtimestamp(report.header.created_at, UTC).isoformat(timespec="seconds")
    typer.echo(f"Restored {_describe(report)}, as they were at {moment}.", err=True)
    for name, reason in report.reasons.items():
        typer.echo(f"Left {name} here as it was: {reason}.", err=True)
    if report.is_signed and key_file is None:
        typer.echo(
            "The backup is signed, but its signature was not checked: give --key-file.", err=True
        )
    record_command(settings, "backup.restore", str(file))


@contextmanager
def _show_progress() -> "Generator[Callable[[Progress], None], None, None]":
    bar = ProgressBar()
    try:
        yield lambda step: bar.show(f"{step.work} {step.part}", step.done, step.total)
    finally:
        bar.clear()


def _describe(report: "BackupReport") -> str:
    parts = [f"{name} ({count})" for name, count in report.counts.items()]
    return ", ".join(parts) or "nothing"


def _read_key(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationFailed(
            f"The key in '{path}' cannot be read: {error.strerror or error}.",
            hint="Write one with: openssl rand -hex 32 > backup.key",
        ) from error
    if len(key) < _SHORTEST_KEY:
        raise ConfigurationFailed(
            f"The key in '{path}' has fewer than {_SHORTEST_KEY} characters.",
            hint="Write one with: openssl rand -hex 32 > backup.key",
        )
    return key
