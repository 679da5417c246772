"""The command `copilot-runtime migrate`."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.progress import ProgressBar
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.program import load_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.operations.schemas import Schema, SchemaStatus

_STATES = {
    "current": "up to date",
    "new": "nothing there yet",
    "old": "to be migrated",
    "later": "of a later version",
    "unusable": "cannot be used",
}


def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Bring the tables of all stores up to date, and show their versions.

    \b
    copilot-runtime migrate --dry-run
    copilot-runtime migrate
    copilot-runtime migrate --program main:runtime

    The stores are those of copilot.yml and the environment, or of a program with Settings(...) of
    its own that --program names.

    Servers do the same when they start: this does it before, and says what it finds. Each store is
    migrated in one transaction, so one that is interrupted is as it was; two that migrate at once
    wait for each other. Servers of the version before may go on meanwhile.

    The exit status is 1 if a store cannot be used, such as one of a later version. There is no way
    back: `copilot-runtime backup` first.
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
