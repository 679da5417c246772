"""Print the events of a run to a terminal: text as text, everything else on a line of its own."""

import re
import sys
from urllib.parse import urljoin

import typer

from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Interrupt,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.base.jsonvalue import to_text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters that could make a terminal do more than show text."""

_CODE = r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)"
_SPAN = re.compile(_CODE)
_LINK = re.compile(rf"{_CODE}|\]\(/")
_BOLD = re.compile(rf"{_CODE}|(?<![\w*])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?!\w)")
_OPEN = re.compile(r"((?<![\w*])\*{1,2}(?![\s*])[^*\n]{0,200}\*{0,2}|`[^\n]{0,200}|\]\(?)\Z")
"""The beginning of bold text, code or a link at the end of a chunk, which the next one may end."""


class Screen:
    """Prints one answer as it streams in. Control characters are removed.

    A terminal shows bold text as such. Links of the server at `url` get its address. Code is
    printed as it is.
    """

    def __init__(self, url: str = "") -> None:
        self._origin = urljoin(url, "/")
        self._is_terminal = sys.stdout.isatty()
        self._rest = ""
        self._in_line = False
        self._in_block = False
        self._calls: dict[str, tuple[str, list[str]]] = {}

    def show(self, event: Event) -> None:
        """Print the content of an event; reasoning, state and similar events print nothing."""
        match event:
            case TextMessageContent():
                self._write(event.content)
            case TextMessageEnd():
                self.end_line()
                self._in_block = False
            case ActionExecutionStart():
                self._calls[event.call_id] = event.name, []
            case ActionExecutionArgs() if event.call_id in self._calls:
                self._calls[event.call_id][1].append(event.delta)
            case ActionExecutionEnd() if event.call_id in self._calls:
                name, pieces = self._calls.pop(event.call_id)
                self._write_line(f"  → {name}({''.join(pieces)})")
            case ActionExecutionResult():
                self._write_line(f"  ← {event.name}: {event.result}")
            case StepStarted():
                self._write_line(f"  · {event.name}")
            case Interrupt():
                self._write_line(f"  ? {event.message or to_text(event.value)}")
            case _:
                pass

    def print_text(self, text: str) -> None:
        """Print a whole text and end its line."""
        self._write(text)
        self.end_line()

    def end_line(self) -> None:
        """Start a new line unless the output is already at the start of one."""
        if self._in_line or self._rest:
            self._write("\n")

    def _write_line(self, line: str) -> None:
        self.end_line()
        self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        text = self._rest + _CONTROL.sub("", text)
        found = _OPEN.search(_SPAN.sub(lambda code: "." * len(code[0]), text))
        self._rest = text[found.start() :] if found else ""
        for line in text.removesuffix(self._rest).splitlines(keepends=True):
            if not self._in_line and line.lstrip().startswith("```"):
                self._in_block = not self._in_block
            elif not self._in_block:
                line = self._format(line)
            self._in_line = not line.endswith("\n")
            typer.echo(line, nl=False)
        sys.stdout.flush()

    def _format(self, line: str) -> str:
        """Return a line with complete links and, for a terminal, bold text."""
        line = _LINK.sub(lambda one: one[0] if one[1] else f"]({self._origin}", line)
        if self._is_terminal:
            line = _BOLD.sub(lambda one: f"\x1b[1m{one[2]}\x1b[22m" if one[2] else one[0], line)
        return line
