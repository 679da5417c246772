"""The format of messages between processes: a head as a JSON list, a line break, and a payload.

| head | means | bytes |
|---|---|---|
| `["ask", number, question, values]` | a question | |
| `["answer", number, value]` | its answer | |
| `["tell", name, values]` | a notification without an answer | |
| `["follow", log, position]` | send the events of a log from a position on | |
| `["check", [[log, position], ...]]` | positions of logs: tell `checked`, send missing events | |
| `["leave", log]` | send no more of it | |
| `["events", [[log, position, next], ...]]` | events of logs, from a position to the next | them |
| `["end", log, position]` | the log has ended there | |
| `["missing", log]` | there is no such log | |

Positions count events from the beginning of a log. The events of several logs are written as
`encode_parts` does, each log behind its place in the head.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson


class PeerMessage(NamedTuple):
    """A decoded message: its kind, its arguments, and its payload bytes."""

    kind: str
    fields: Sequence[Any]
    payload: bytes = b""


def encode_message(kind: str, *fields: Any, payload: bytes = b"") -> bytes:
    """Encode a message."""
    return b"%b\n%b" % (orjson.dumps([kind, *fields]), payload)


def decode_message(data: bytes) -> PeerMessage:
    """Decode a message. Raises `ValueError` if it is malformed."""
    head, _, payload = data.partition(b"\n")
    match orjson.loads(head):
        case [str(kind), *fields]:
            return PeerMessage(kind, fields, payload)
        case _:
            raise ValueError("a message begins with its kind")
