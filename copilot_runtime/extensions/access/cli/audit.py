"""The commands `copilot-runtime operate audit`: list, export and verify the audit log."""

import sys
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from copilot_runtime.base.errors import ConfigurationFailed, NotFound
from copilot_runtime.base.formatting import format_count
from copilot_runtime.base.jsontext import dumps_line
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.program import load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.audit.log import Tail
    from copilot_runtime.extensions.settings import Settings

audit = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

FileOption = Annotated[
    Path | None, typer.Option("--file", help="Audit log; default: the setting audit.file.")
]
UserOption = Annotated[str | None, typer.Option(help="Only requests of this user.")]
ActionOption = Annotated[
    str | None, typer.Option(help="Only this action, or a prefix of actions: run, keys.")
]
OutcomeOption = Annotated[
    str | None, typer.Option(help="Only this outcome: allowed, refused, failed, finished, stopped.")
]
ThreadOption = Annotated[str | None, typer.Option(help="Only entries about this thread.")]
SinceOption = Annotated[
    str | None,
    typer.Option(help="Only from this time (UTC) on, such as 2026-11-26 or 2026-11-26T18:00."),
]


@audit.callback()
def look_after() -> None:
    """List, export and verify the audit log.

    \b
    copilot-runtime operate audit list --outcome refused
    copilot-runtime operate audit export --since 2026-11-01 > november.jsonl
    copilot-runtime operate audit verify
    copilot-runtime operate audit list --program main:runtime

    The file is that of the setting audit.file, from copilot.yml and the environment, or from the
    Settings(...) of a program named by --program. These commands may be used while servers run.
    """


@audit.command("list")
def show(
    user: UserOption = None,
    action: ActionOption = None,
    outcome: OutcomeOption = None,
    thread: ThreadOption = None,
    since: SinceOption = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of lines, the latest ones.")
    ] = 50,
    as_json: JsonOption = False,
    file: FileOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """List what happened, the latest last.

    \b
    copilot-runtime operate audit list --user ann --action run
    copilot-runtime operate audit list --outcome refused --limit 200 --json
    """
    _, path = _find(file, program, config)
    found = deque(_select(path, user, action, outcome, thread, since), limit)
    if as_json:
        show_json([*found])
        return
    head = ("TIME", "USER", "BY", "FROM", "ACTION", "THREAD", "OUTCOME", "REASON")
    rows = [
        (
            *(fields["time"], fields.get("user", "-"), fields.get("method", "-")),
            *(fields.get("address", "-"), fields.get("action", "-")),
            *(fields.get("thread", "-"), fields.get("outcome", "-"), fields.get("reason", "")),
        )
        for fields in found
    ]
    show_table(head, rows, "Nothing is written down that fits.")


@audit.command()
def export(
    user: UserOption = None,
    action: ActionOption = None,
    outcome: OutcomeOption = None,
    thread: ThreadOption = None,
    since: SinceOption = None,
    file: FileOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the entries as JSON Lines, the oldest first.

    \b
    copilot-runtime operate audit export > audit.jsonl
    copilot-runtime operate audit export --outcome refused | jq -r .address | sort | uniq -c
    """
    _, path = _find(file, program, config)
    for fields in _select(path, user, action, outcome, thread, since):
        sys.stdout.write(dumps_line(fields).decode() + "\n")


@audit.command()
def verify(
    head: Annotated[
        str | None,
        typer.Option(help="The head that an earlier call printed: the log must still contain it."),
    ] = None,
    file: FileOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Check whether lines were changed, removed or inserted.

    \b
    copilot-runtime operate audit verify
    copilot-runtime operate audit verify --head 1042:9f86d081884c7d65…

    Each line has a hash that covers the line before. The last line printed is the head: keep it
    elsewhere, and a later call with --head finds that the end was cut off. With the setting
    audit.key, the log cannot be rewritten without the key. The exit status is 1 for a log that
    was changed.
    """
    from copilot_runtime.extensions.access.audit.verify import NO_KEY
    from copilot_runtime.extensions.access.audit.verify import verify as run

    settings, path = _find(file, program, config)
    found = run(path, settings.audit.key, None if head is None else _read_head(head))
    for problem in found.problems:
        typer.echo(problem)
    if not found.is_intact:
        count = len(found.problems)
        typer.echo(f"The audit log was changed: {count} problem{'' if count == 1 else 's'}.")
        raise typer.Exit(1)
    if found.first > 1:
        typer.echo(f"Lines before number {found.first} are deleted: audit.max_files.")
    typer.echo(f"{format_count(found.lines, 'line')}, unchanged.")
    if not settings.audit.key:
        typer.echo(NO_KEY)
    typer.echo(f"head {found.head.number}:{found.head.hash}")


def _find(file: Path | None, program: str | None, config: Path | None) -> "tuple[Settings, Path]":
    """Return the settings and the path of the log. Raises `ConfigurationFailed`, `NotFound`."""
    from copilot_runtime.extensions.access.audit.log import list_files

    settings = load_command_settings(program, config, has_notice=file is None)
    path = file or (Path(settings.audit.file) if settings.audit.file else None)
    if path is None:
        raise ConfigurationFailed(
            "No audit log is written.",
            hint="Set audit.file in copilot.yml, or give --file or --program.",
        )
    if not path.parent.is_dir() or not list_files(path):
        raise NotFound(f"There is no audit log '{path}'.")
    return settings, path


def _select(
    path: Path,
    user: str | None,
    action: str | None,
    outcome: str | None,
    thread: str | None,
    since: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield matching lines. Raises `ConfigurationFailed` for an unknown outcome."""
    from copilot_runtime.extensions.access.audit.entry import Outcome
    from copilot_runtime.extensions.access.audit.verify import read_lines

    if outcome is not None and outcome not in get_args(Outcome):
        raise ConfigurationFailed(
            f"There is no outcome {outcome!r}.", hint=f"There are {', '.join(get_args(Outcome))}."
        )
    start = "" if since is None else _read_time(since)
    values = {"user": user, "outcome": outcome, "thread": thread}
    for line in read_lines(path):
        fields = line.fields
        if fields is None or any(
            value is not None and fields.get(name) != value for name, value in values.items()
        ):
            continue
        if action is not None and not str(fields.get("action", "")).startswith(action):
            continue
        if str(fields.get("time", "")) >= start:
            yield fields


def _read_time(text: str) -> str:
    """Return a time in the format of the log. Raises `ConfigurationFailed`."""
    from copilot_runtime.extensions.access.audit.entry import format_time

    try:
        moment = datetime.fromisoformat(text)
        return format_time((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ConfigurationFailed(
            f"{text!r} is no time.",
            hint="Write 2026-11-26, or 2026-11-26T18:00; it is that of UTC.",
        ) from None


def _read_head(text: str) -> "Tail":
    """Parse the head of an earlier verification. Raises `ConfigurationFailed`."""
    from copilot_runtime.extensions.access.audit.log import Tail

    number, separator, digest = text.removeprefix("head ").partition(":")
    if not separator or not number.isdecimal():
        raise ConfigurationFailed(
            f"{text[:80]!r} is no head.", hint="`copilot-runtime operate audit verify` prints one."
        )
    return Tail(int(number), digest)
