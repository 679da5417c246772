"""Decode server-sent events from bytes as they arrive.

https://html.spec.whatwg.org/multipage/server-sent-events.html, without the fields that models and
agents do not need: ids, reconnection times, and event names (the data has the type, too).
Events without data, and those named `ping`, only keep a connection alive, and are ignored.
"""

from copilot_runtime.base.errors import NetworkError

MAX_EVENT_SIZE = 8 * 1024 * 1024
"""Maximum size of an event, in bytes."""

PAYLOADS_AT_ONCE = 64
"""Events of one block that are decoded before yielding to the event loop."""

_LONGEST_TEXT = 10_000
_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"event", b"id", b"retry")


class SSEDecoder:
    """Decodes blocks of bytes, cut anywhere: `feed` returns the data of each complete event.

    `is_event_stream` becomes true with the first field of an event; any other text leaves it false.
    An event larger than `limit` bytes raises `NetworkError`.
    """

    def __init__(self, limit: int = MAX_EVENT_SIZE) -> None:
        self.is_event_stream = False
        self.other_text = b""
        """The beginning of a text that is no event stream, or of what stands between events."""
        self._limit = limit
        self._rest: list[bytes] = []  # an incomplete line
        self._data: list[bytes] = []  # the lines of an incomplete event
        self._size = 0  # of both
        self._after_cr = False

    @property
    def is_between_events(self) -> bool:
        """True when no event has begun that lacks its end."""
        return not self._data and all(map(bytes.isspace, self._rest))

    def feed(self, block: bytes) -> list[bytes]:
        """Return the data of every event that ends in this block."""
        if (  # nearly always, it is one event in one line
            block.startswith(b"data: ")
            and block.endswith(b"\n\n")
            and block.find(b"\n") == len(block) - 2 > 6
            and block.find(b"\r") < 0
            and not (self._rest or self._data or self._after_cr)
        ):
            self.is_event_stream = True
            return [block[6:-2]]
        if self._after_cr or b"\r" in block:
            block = self._normalize_newlines(block)
        if self._rest:
            if b"\n" not in block:
                self._append_rest(block)
                return []
            block = self._join_rest() + block
        frames = block.split(b"\n\n")
        rest = frames.pop()
        events: list[bytes] = []
        for frame in frames:
            # nearly always an event is one line
            if not self._data and frame.startswith(b"data: ") and b"\n" not in frame:
                events.append(frame[6:])
            elif not self._data and frame.startswith(b"event: ") and frame.count(b"\n") == 1:
                self._parse_named_event(frame, events)
            else:
                self._parse_lines(frame.split(b"\n"), events)
                self._flush_event(events)
        if events:
            self.is_event_stream = True
        if rest:
            self._start_event(rest, events)
        return [data for data in events if data] if b"" in events else events

    def finish(self) -> list[bytes]:
        """Return the data of a last event that lacks its empty line."""
        events: list[bytes] = []
        if self._rest:
            self._parse_lines([self._join_rest()], events)
        self._flush_event(events)
        return [data for data in events if data]

    def _start_event(self, rest: bytes, events: list[bytes]) -> None:
        """Buffer the beginning of an event that ends in a later block."""
        lines = rest.split(b"\n")
        rest = lines.pop()
        if lines:
            self._parse_lines(lines, events)
        if rest:
            self._append_rest(rest)

    def _parse_named_event(self, frame: bytes, events: list[bytes]) -> None:
        """Decode an event of two lines, `event:` and `data:`, as Anthropic sends them."""
        name, _, line = frame.partition(b"\n")
        if name == b"event: ping":
            self.is_event_stream = True
        elif line.startswith(b"data: "):
            events.append(line[6:])
        else:
            self._parse_lines(frame.split(b"\n"), events)
            self._flush_event(events)

    def _append_rest(self, rest: bytes) -> None:
        self._rest.append(rest)
        self._grow(len(rest))

    def _join_rest(self) -> bytes:
        rest = b"".join(self._rest)
        self._rest.clear()
        self._size -= len(rest)
        return rest

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._limit:
            raise NetworkError(
                f"The answer holds an event larger than {self._limit} bytes.",
                hint="Is the URL that of a model or an agent? Such events are not read.",
            )

    def _parse_lines(self, lines: list[bytes], events: list[bytes]) -> None:
        for line in lines:
            if not line:
                self._flush_event(events)
                continue
            name, _, value = line.removeprefix(_BOM).partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._grow(len(line))
            elif not name or name in _FIELDS:
                self.is_event_stream = True
            elif len(self.other_text) < _LONGEST_TEXT:  # such as an error behind the last event
                self.other_text += line[:_LONGEST_TEXT] + b"\n"

    def _flush_event(self, events: list[bytes]) -> None:
        if self._data:
            self.is_event_stream = True
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._size = 0

    def _normalize_newlines(self, block: bytes) -> bytes:
        """Return the block with LF for CR LF and for CR, also where a pair is cut in two."""
        if self._after_cr and block.startswith(b"\n"):
            block = block[1:]
            self._after_cr = False
        if block:
            self._after_cr = block.endswith(b"\r")
        return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
