"""Messages of Phoenix channels, in the format of the npm package `phoenix` (version 2).

A message is a JSON list: the reference of the join, that of the message, topic, event, payload.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from copilot_runtime.base.jsontext import dumps, loads

HEARTBEAT_TOPIC = "phoenix"


class PhoenixMessage(NamedTuple):
    """A message of a channel. Messages pushed by the server have no `ref`."""

    join_ref: str | None
    ref: str | None
    topic: str
    event: str
    payload: Any


def decode_message(text: str) -> PhoenixMessage:
    """Decode a message. Raises `ValueError` if it is malformed."""
    match loads(text.encode(errors="replace")):
        case [str() | None as join_ref, str() | None as ref, str(topic), str(event), payload]:
            return PhoenixMessage(join_ref, ref, topic, event, payload)
        case _:
            raise ValueError("a message is a list of five")


def encode_message(message: PhoenixMessage) -> str:
    """Encode a message."""
    return dumps([*message]).decode()


def reply(
    message: PhoenixMessage, status: str, response: Mapping[str, Any] | None = None
) -> PhoenixMessage:
    """Return the reply to a message, with the status `ok` or `error`."""
    payload = {"status": status, "response": response or {}}
    return message._replace(event="phx_reply", payload=payload)
