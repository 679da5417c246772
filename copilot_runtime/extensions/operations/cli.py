"""The commands `copilot-runtime doctor`, and `operate backup`, `restore` and `migrate`."""

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.cli.output import JsonOption, clean_line, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.progress import ProgressBar
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.access.audit.command import record_command
from copilot_runtime.extensions.program import load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.extensions.operations.backup.backup import BackupReport, Progress
    from copilot_runtime.extensions.operations.doctor import Finding
    from copilot_runtime.extensions.operations.schemas import Schema, SchemaStatus

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
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    without: WithoutOption = None,
    key_file: KeyOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Write all data of a server into one file, even while it runs.

    \b
    copilot-runtime operate backup monday.tar.gz
    copilot-runtime operate backup monday.tar.gz --program main:runtime
    copilot-runtime operate backup monday.tar.gz --without traces --without audit
    copilot-runtime operate backup - | ssh backups.example 'cat > monday.tar.gz'

    The stores are those of copilot.yml and the environment, or of the Settings(...) of a program
    named by --program.

    Threads, plans, API keys (their hashes), events, the audit log, traces, and all objects of
    knowledge, as far as the settings name a file or a database. Data that is only in the memory of
    a server is not backed up, and neither are copilot.yml and files of your own.

    Each part is a consistent snapshot. The file gets its name only when it is complete, and only
    its owner may read it. An existing file is replaced only with --force. Part files of killed
    backups to the same path (.monday.tar.gz.….part) are removed by the next backup.

    --key-file signs the file, so that it cannot be changed without the key.
    """
    from copilot_runtime.extensions.operations.backup.backup import write_backup
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
    force: Annotated[bool, typer.Option("--force", help="Replace all existing data.")] = False,
    without: WithoutOption = None,
    key_file: KeyOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Restore a backup into the stores of the settings, which may differ from the original ones.

    \b
    copilot-runtime operate restore monday.tar.gz
    copilot-runtime operate restore monday.tar.gz --force --without audit
    COPILOT_THREADS=postgresql://db/app copilot-runtime operate restore monday.tar.gz

    The stores are those of copilot.yml and the environment, or of the Settings(...) of a program
    named by --program.

    Use it to move from SQLite to PostgreSQL, or from a folder to S3, and back. Stop the servers
    first. Stores that are not empty are refused without --force.

    A part without a store in the settings is refused: omit it by --without. If only some parts
    move, stores at the same place as in the backup are left unchanged. So is an audit log that
    contains all lines of the backup; --force does not truncate one.

    The whole file is validated before stores are changed, and all changes are committed together at
    the end: a truncated, modified or newer backup changes nothing. Runs that were active during the
    backup are ended as interrupted. Plans continue.
    """
    from copilot_runtime.extensions.operations.backup.backup import restore_backup
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


_MARKS = {"good": "✓", "warning": "!", "problem": "✗"}


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:NAME or URL]",
            help="A CopilotRuntime, as for serve; or the URL of a running one.",
        ),
    ] = None,
    call: Annotated[
        bool,
        typer.Option("--call", help="Call the model, the embedder and MCP servers; costs tokens."),
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, as for serve.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on, as for serve.", min=0, max=65535, show_default=False),
    ] = None,
    services: Annotated[
        str | None,
        typer.Option(help="Only these gRPC services, as for serve: vector,graph."),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Check what a server needs, and say how to fix each problem.

    \b
    copilot-runtime doctor
    copilot-runtime doctor main:runtime --call
    copilot-runtime doctor http://127.0.0.1:8000/graphql
    copilot-runtime doctor --host 0.0.0.0 --port 8080
    copilot-runtime doctor --services vector,graph
    copilot-runtime doctor --json | jq '.[] | select(.state != "good")'

    Settings, packages, open files, disks, ports, clocks, file permissions, the versions of all
    stores, the message broker, the store of limits, the storage of knowledge, the audit log, the
    provider of the model, embeddings, MCP servers, and receivers of telemetry. Nothing is changed,
    and no secret is shown. --host, --port and --services are those with which the server starts.
    Of a URL, the first requests of a React application are sent.

    ✓ is good, ! is a warning, ✗ is a problem. The exit status is 1 if there is a problem.
    """
    from copilot_runtime.config.loader import adapter_name
    from copilot_runtime.extensions.grpc.serve import explain_options
    from copilot_runtime.extensions.operations.doctor import explain_error
    from copilot_runtime.extensions.operations.doctor.doctor import examine
    from copilot_runtime.extensions.settings import read_settings

    if target is not None and target.startswith(("http://", "https://")):
        from copilot_runtime.extensions.operations.doctor.server import examine_server

        _report(asyncio.run(examine_server(target)), as_json=as_json)
    if config is not None:
        os.environ["COPILOT_CONFIG"] = str(config)  # a module that is served reads the same one
    options = {"host": host, "port": port}
    options = {name: value for name, value in options.items() if value is not None}
    if services is not None:
        explain_options(options)
        os.environ["COPILOT_GRPC_SERVICES"] = services
    try:
        settings, origins = read_settings(config, overrides=options)
    except CopilotError as error:
        _report([explain_error("configuration", error)], as_json=as_json)

    def make_runtime() -> "CopilotRuntime":
        from copilot_runtime.cli.serve import build_runtime, find_runtime
        from copilot_runtime.cli.target import find_target

        if target is None:
            return build_runtime(adapter_name(settings), settings)
        if (runtime := find_runtime(find_target(target))) is None:
            raise ConfigurationFailed(f"{target} is no CopilotRuntime.")
        return runtime

    path = Path(origins.path) if origins.path else None
    found = asyncio.run(
        examine(
            settings,
            make_runtime,
            config=path,
            environ=os.environ,
            calls=call,
            options=options,
            is_http=services is None,
        )
    )
    _report(found, as_json=as_json)


def _report(found: "Sequence[Finding]", *, as_json: bool) -> NoReturn:
    """Print the findings, and exit."""
    if as_json:
        show_json([asdict(finding) for finding in found])
    else:
        _show(found)
    raise typer.Exit(int(any(finding.state == "problem" for finding in found)))


def _show(found: "Sequence[Finding]") -> None:
    width = max(len(finding.name) for finding in found)
    for finding in found:
        typer.echo(f"{_MARKS[finding.state]} {finding.name:<{width}}  {clean_line(finding.text)}")
        if finding.hint:
            typer.echo(f"  {'':<{width}}  → {clean_line(finding.hint)}")
    counts = {state: sum(one.state == state for one in found) for state in _MARKS}
    typer.echo(
        f"\n{counts['good']} good, {counts['warning']} worth a look, {counts['problem']} wrong"
    )


_STATES = {
    "current": "up to date",
    "new": "nothing there yet",
    "old": "to be migrated",
    "later": "of a later version",
    "unusable": "cannot be used",
}


def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show pending migrations without applying them.")
    ] = False,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Migrate the tables of all stores, and show their versions.

    \b
    copilot-runtime operate migrate --dry-run
    copilot-runtime operate migrate
    copilot-runtime operate migrate --program main:runtime

    The stores are those of copilot.yml and the environment, or of the Settings(...) of a program
    named by --program.

    Servers migrate stores at startup as well. Each store is migrated in one transaction, so an
    interrupted migration changes nothing; concurrent migrations wait for each other. Servers of the
    previous version may continue to run.

    The exit status is 1 if a store cannot be used, for example if it is of a later version. A
    migration cannot be undone: run `copilot-runtime operate backup` first.
    """
    from copilot_runtime.extensions.operations.schemas import list_schemas

    schemas = list_schemas(load_command_settings(program, config))
    found = asyncio.run(_look(schemas, is_dry=dry_run))
    if as_json:
        show_json([asdict(status) for status in found])
    else:
        head = ("STORE", "WHERE", "VERSION", "NEWEST", "STATE")
        show_table(head, [_build_row(status) for status in found], "Nothing is kept.")
        for status in found:
            if status.problem:
                typer.echo(f"{status.name}: {status.problem} {status.way_out}".rstrip(), err=True)
    if not all(status.is_usable for status in found):
        raise typer.Exit(1)


async def _look(schemas: "Sequence[Schema]", *, is_dry: bool) -> "Sequence[SchemaStatus]":
    """Inspect all stores concurrently, as a database may hang; migrate one at a time."""
    bar = ProgressBar()
    bar.show("Looking at the stores", 0, len(schemas))
    found = await asyncio.gather(*(schema.inspect() for schema in schemas))
    for number, (schema, status) in enumerate(zip(schemas, found, strict=True)):
        if status.state == "old" and not is_dry:
            bar.show(f"Migrating {schema.place.content}", number, len(schemas))
            found[number] = await schema.bring_up_to_date()
    bar.clear()
    return found


def _build_row(status: "SchemaStatus") -> Sequence[str]:
    version = "-" if status.version is None else str(status.version)
    return status.name, status.address, version, str(status.newest), _STATES[status.state]
