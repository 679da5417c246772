"""A progress bar for terminals."""

import sys

import typer

_WIDTH = 30


class ProgressBar:
    """A progress line on stderr that is redrawn in place; silent if stderr is not a terminal."""

    def __init__(self) -> None:
        self._is_shown = is_terminal()

    def show(self, step: str, done: int, total: int) -> None:
        """Draw the progress."""
        full = _WIDTH * min(done, total) // max(total, 1)
        bar = "#" * full + "." * (_WIDTH - full)
        self._write(f"{step:<10} [{bar}] {done}/{total}")

    def clear(self) -> None:
        """Erase the line."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._is_shown:
            typer.echo(f"\r\x1b[K{text}", err=True, nl=False)


def is_terminal() -> bool:
    """Return `True` if stderr is a terminal."""
    return sys.stderr.isatty()
