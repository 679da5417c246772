"""The output of commands: JSON for programs, tables for people."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, for programs.")]

_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that JSON does not escape: C1 controls, invisible ones and changes of direction."""


def show_json(value: Any) -> None:
    """Print a value as indented JSON, with terminal control characters escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    typer.echo(_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def show_table(head: Sequence[str], rows: Sequence[Sequence[Any]], nothing: str) -> None:
    """Print rows as a table below `head`; without rows, print the text `nothing` to stderr."""
    if not rows:
        typer.echo(nothing, err=True)
        return
    from copilot_runtime.cli.tables import format_table  # imports the settings of all extensions

    cells = [[clean_line(str(cell)) for cell in row] for row in rows]
    typer.echo(format_table([head, *cells]))


def clean_line(text: str) -> str:
    """Return a text on one line, with each unprintable character replaced by a space."""
    return "".join(char if char.isprintable() else " " for char in text)
