"""Redact credentials, tracebacks and server paths in answers.

A text is scanned in segments, which end at spaces that no pattern spans. The result of a segment
depends on its content only, so the chunking of a stream makes no difference, and the buffer is
bounded.
"""

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import time_ns

from copilot_runtime.api.events import (
    Event,
    Events,
    ReasoningContent,
    ReasoningEnd,
    TextMessageContent,
    TextMessageEnd,
)

REDACTED = "[REDACTED]"
_LONGEST = 4_096
"""Maximum number of buffered characters."""
_OVERLAP = 512
"""Number of characters of a longer run without spaces that are scanned again."""

_LONGEST_OPEN = 200
"""Number of characters within which a secret reveals that it continues after a space."""

_NAME = (
    r"password|passwd|passphrase|(?:api|secret|private)[_-]?key|"
    r"(?:auth|access|refresh)[_-]?token|client[_-]?secret"
)
_GAP = r"[^\S\n]{0,16}"
_QUOTES = "\"'`"
_AFTER_NAME = rf"[{_QUOTES}*_]{{0,3}}{_GAP}"
_SEPARATOR = rf"[:=]{{1,2}}[*_]{{0,2}}{_GAP}"
_VALUE = rf"(?:\"[^\"\n]*\"?|'[^'\n]*'?|`[^`\n]*`?|[^\s|{_QUOTES}][^\s|]*)"
_SERVER_FOLDERS = (
    r"app|bin|dev|etc|home|lib|media|mnt|opt|private|proc|root|run|sbin|srv|sys|tmp|Users|usr|var|"
    r"workspace|work|Volumes|Library|Applications"
)
_SECRETS = re.compile(
    rf"""
    (?P<name>{_NAME}){_AFTER_NAME}{_SEPARATOR}(?P<value>{_VALUE})
    | (?P<header>authorization){_AFTER_NAME}{_SEPARATOR}["'`]?
      (?:(?:bearer|basic|digest|token){_GAP}[^\s|]+|(?=\S*\d)[^\s|]{{12,}})
    | (?P<scheme>\bbearer)[ ]+(?=[^\s]*[\d_.~+/=])[\w.~+/=-]{{12,}}
    | (?P<rest>traceback{_GAP}\(most{_GAP}recent{_GAP}call{_GAP}last\)
        | -----BEGIN[ ][A-Z ]{{0,40}}PRIVATE[ ]KEY-----)
    | (?P<line>\bFile{_GAP}["'][^"'\s]{{1,150}}["'],{_GAP}line{_GAP}\d+)
    | (?P<login>://[^\s:/@]{{1,100}}):[^\s/@]{{1,200}}(?=@)
    | (?P<shape>
        (?<![A-Za-z0-9])sk-(?:(?:proj|ant|live|test|svcacct|or)-|(?=[\w-]*\d))[\w-]{{16,}}
        | (?<![A-Za-z0-9])(?-i:(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{{16}})(?![A-Za-z0-9])
        | (?<![A-Za-z0-9])(?-i:gh[pousr]_[A-Za-z0-9]{{20,}}|github_pat_\w{{20,}})
        | (?<![A-Za-z0-9])(?-i:xox[abeoprs]-[\w-]{{10,}}|AIza[\w-]{{35}})
        | (?<![A-Za-z0-9])(?-i:eyJ[\w-]{{8,}}\.eyJ[\w-]{{8,}}\.[\w-]*)
      )
    | (?P<path>
        (?:file://|(?<![\w/.~-])(?<!\]\())(?-i:/(?:{_SERVER_FOLDERS})/)[^\s{_QUOTES}<>|)\]}},;]+
        | (?<![\w/])[a-z]:\\(?:[^\s{_QUOTES}<>|,;:\\]+\\)+[^\s{_QUOTES}<>|,;:]*
      )
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPEN = re.compile(
    rf"""
    (?:
      (?:{_NAME}){_AFTER_NAME}(?:{_SEPARATOR})?
      | authorization{_AFTER_NAME}(?:{_SEPARATOR}(?:["'`]?(?:bearer|basic|digest|token){_GAP})?)?
      | \bbearer[ ]+
      | traceback{_GAP}(?:\(most{_GAP}(?:recent{_GAP}(?:call{_GAP})?)?)?
      | -----BEGIN[ ][A-Z ]{{0,60}}
      | \bFile{_GAP}(?:["'][^"'\s]{{1,150}}["'],{_GAP}(?:line{_GAP})?)?
    )\Z
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The possible beginning of a secret that contains a space, at the end of a text."""
_HINT = re.compile(
    r"pass|key|token|secret|authorization|bearer|traceback|-----|file|://|sk-|/|:\\|A[KSRI][IOD]A|"
    r"gh[pousr]_|github_|xox|AIza|eyj",
    re.IGNORECASE,
)
"""A substring of every secret, and of few words: the fast check before the patterns."""
_SPACE = re.compile(r"\s")
_TRAIL = re.compile(r"[,.;:)\]}*]+\Z")


def guard_output(text: str) -> str:
    """Return a text with credentials, tracebacks and server paths redacted."""
    guard = OutputGuard()
    return guard.feed(text) + guard.finish()


class OutputGuard:
    """Redacts a text that arrives in chunks. Takes linear time in its length."""

    def __init__(self) -> None:
        self.redactions = 0
        """The number of secrets redacted so far."""
        self._buffer = ""
        self._scanned = 0
        self._until: re.Pattern[str] | None = None
        """The pattern that ends the redacted stretch; its own match is kept."""
        self._is_over = False

    def feed(self, chunk: str) -> str:
        """Add a chunk and return the text that may be sent now."""
        if self._is_over:
            return ""
        self._buffer += chunk
        return self._advance()

    def finish(self) -> str:
        """Return the remaining buffered text."""
        rest, self._buffer = self._buffer, ""
        return "" if self._is_over or self._until else self._redact(rest)[0]

    def _advance(self) -> str:
        pieces: list[str] = []
        start = 0
        text = self._buffer
        while start < len(text) and not self._is_over:
            if self._until:
                found = self._until.search(text, start)
                start = found.start() if found else len(text)
                self._until = None if found else self._until
                continue
            end = self._find_end(text, start)
            if end is None:
                break
            if end - start >= _LONGEST:
                piece, used = self._cut(text[start:end])
                end = start + used
            else:
                piece, _ = self._redact(text[start:end])
            pieces.append(piece)
            start = end
            self._scanned = 0
        self._buffer = "" if self._is_over else text[start:]
        return "".join(pieces)

    def _find_end(self, text: str, start: int) -> int | None:
        """Return the end of the segment, or `None` if it is not known yet."""
        limit = start + _LONGEST
        position = start + self._scanned
        while found := _SPACE.search(text, position, limit):
            position = found.end()
            self._scanned = position - start
            end = text[max(start, position - _LONGEST_OPEN) : position]
            if not _HINT.search(end) or not _OPEN.search(end):
                return position
        self._scanned = min(len(text), limit) - start
        return limit if len(text) >= limit else None

    def _redact(self, segment: str) -> tuple[str, int]:
        """Return a segment with its secrets redacted, and the end of the last secret."""
        if not _HINT.search(segment):
            return segment, 0
        pieces: list[str] = []
        end = 0
        for found in _SECRETS.finditer(segment):
            pieces.append(segment[end : found.start()] + self._replace(found))
            end = found.end()
            if self._is_over:
                return "".join(pieces), len(segment)
            if found["line"]:
                # the rest of a traceback line is removed as well
                rest = segment.find("\n", end)
                end = len(segment) if rest < 0 else rest
                self._until = _LINE_END if rest < 0 else None
                break
            value = found["value"] or " "
            if (
                end == len(segment)
                and value[0] in _QUOTES
                and (len(value) == 1 or value[-1] != value[0])
            ):
                self._until = _ENDS[value[0]]
        return "".join(pieces) + segment[end:], end

    def _replace(self, found: re.Match[str]) -> str:
        self.redactions += 1
        if found["rest"]:
            self._is_over = True
            return ""
        value = (found["value"] or "").removeprefix(REDACTED)
        trail = _TRAIL.search(value) if value and value[0] not in _QUOTES else None
        if name := found["name"]:
            return f"{name}={REDACTED}{trail[0] if trail else ''}"
        if found["login"]:
            return f"{found['login']}:{REDACTED}"
        prefix = found["header"] or found["scheme"]
        return f"{prefix} {REDACTED}" if prefix else REDACTED

    def _cut(self, segment: str) -> tuple[str, int]:
        """Split a segment that is too long to buffer, and return the part that may be sent."""
        cut = len(segment) - _OVERLAP
        for found in _SECRETS.finditer(segment):
            if found.end() == len(segment):
                piece, _ = self._redact(segment)
                quote = (found["value"] or " ")[0]
                self._until = self._until or _ENDS.get(quote, _SPACE)
                return piece, len(segment)
            if found.start() < cut < found.end():
                cut = found.start() or found.end()
                break
        return self._redact(segment[:cut])[0], cut


_LINE_END = re.compile(r"\n")
_ENDS = {quote: re.compile(rf"[{quote}\n]") for quote in _QUOTES}


@dataclass(slots=True)
class _Text:
    guard: OutputGuard
    pieces: list[str]


class AnswerTexts:
    """Redacts credentials and tracebacks in the texts of one answer."""

    def __init__(self) -> None:
        self.last = ""
        """The last complete text."""
        self.start_time = 0
        """Start time of the first text in nanoseconds since 1970, or 0."""
        self.redactions = 0
        """The number of redactions."""
        self._open: dict[str, _Text] = {}

    async def guard(self, events: Events) -> Events:
        """Yield the events with redacted texts. Text may be delayed by the buffer."""
        async with aclosing(events):
            async for event in events:
                for one in self._feed(event):
                    yield one

    def _feed(self, event: Event) -> Sequence[Event]:
        match event:
            case TextMessageContent(message_id=id, content=content):
                self.start_time = self.start_time or time_ns()
                return self._write(id, self._find(id).guard.feed(content))
            case TextMessageEnd(message_id=id):
                last = self._write(id, self._find(id).guard.finish())
                self.last = "".join(self._close(id).pieces)
                return [*last, event]
            case ReasoningContent(message_id=id, content=content):
                text = self._find(id).guard.feed(content)
                return [ReasoningContent(message_id=id, content=text)] if text else []
            case ReasoningEnd(message_id=id):
                text = self._find(id).guard.finish()
                self._close(id)
                last = [ReasoningContent(message_id=id, content=text)] if text else []
                return [*last, event]
            case _:
                return [event]

    def _find(self, id: str) -> _Text:
        if id not in self._open:
            self._open[id] = _Text(OutputGuard(), [])
        return self._open[id]

    def _close(self, id: str) -> _Text:
        text = self._open.pop(id)
        self.redactions += text.guard.redactions
        return text

    def _write(self, id: str, text: str) -> list[Event]:
        if not text:
            return []
        self._find(id).pieces.append(text)
        return [TextMessageContent(message_id=id, content=text)]
