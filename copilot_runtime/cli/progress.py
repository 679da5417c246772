"""A bar in a terminal that shows how far something has come."""

import sys

import typer

_WIDTH = 30


class ProgressBar:
    """One line on stderr, which is written again and again; nothing where nobody watches."""

    def __init__(self) -> None:
        self._is_shown = is_terminal()

    def show(self, step: str, done: int, total: int) -> None:
        """Say that some of all is done."""
        full = _WIDTH * min(done, total) // max(total, 1)
        bar = "#" * full + "." * (_WIDTH - full)
        self._write(f"{step:<10} [{bar}] {done}/{total}")

    def clear(self) -> None:
        """Remove the line."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._is_shown:
            typer.echo(f"\r\x1b[K{text}", err=True, nl=False)


def is_terminal() -> bool:
    """Return whether somebody sees what is written to stderr."""
    return sys.stderr.isatty()
