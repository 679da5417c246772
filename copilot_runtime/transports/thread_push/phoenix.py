"""Messages of Phoenix channels, as the npm package `phoenix` writes and reads them (version 2).

A message is a JSON list: the reference of the join, that of the message, topic, event, payload.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from copilot_runtime.base.jsontext import dumps, loads

HEARTBEAT_TOPIC = "phoenix"


class PhoenixMessage(NamedTuple):
    """One message. A push of the server has no `ref`."""

    join_ref: str | None
    ref: str | None
    topic: str
    event: str
    payload: Any


def decode_message(text: str) -> PhoenixMessage:
    """Read a message. Raises `ValueError` for what is none."""
    match loads(text.encode(errors="replace")):
        case [str() | None as join_ref, str() | None as ref, str(topic), str(event), payload]:
            return PhoenixMessage(join_ref, ref, topic, event, payload)
        case _:
            raise ValueError("a message is a list of five")


def encode_message(message: PhoenixMessage) -> str:
    """Write a message."""
    return dumps([*message]).decode()


def reply(
    message: PhoenixMessage, status: str, response: Mapping[str, Any] | None = None
) -> PhoenixMessage:
    """Return the answer to a message: its status is `ok` or `error`."""
    payload = {"status": status, "response": response or {}}
    return message._replace(event="phx_reply", payload=payload)
