"""How payloads are cut on the wire, and which of the ways a client can read.

Multipart: https://github.com/graphql/graphql-over-http/blob/main/rfcs/IncrementalDelivery.md.
Each write ends with the next delimiter, because urql takes a part for complete only when it has
seen what follows it; a server that writes delimiters first shows everything one part late.
"""

from typing import Protocol

GRAPHQL_JSON = "application/graphql-response+json; charset=utf-8"
JSON = "application/json; charset=utf-8"

_ANY_MULTIPART = ("multipart/mixed", "multipart/*", "*/*")


class Framing(Protocol):
    """A way to send a sequence of JSON payloads."""

    content_type: str
    opening: bytes
    closing: bytes

    def part(self, payload: bytes) -> bytes: ...


class Multipart:
    content_type = 'multipart/mixed; boundary="-"'
    opening = b"\r\n---"
    closing = b"--\r\n"

    def part(self, payload: bytes) -> bytes:
        return (
            b"\r\nContent-Type: application/json; charset=utf-8\r\n"
            b"Content-Length: %d\r\n\r\n%b\r\n---" % (len(payload), payload)
        )


class EventStream:
    """Server-sent events, separated by LF LF: the client does not know CRLF."""

    content_type = "text/event-stream"
    opening = b":\n\n"
    closing = b"event: complete\ndata:\n\n"

    def part(self, payload: bytes) -> bytes:
        return b"event: next\ndata: %b\n\n" % payload


def framing_for(accept: str) -> Framing | None:
    """Choose how to stream: multipart wherever it is welcome, events where only they are."""
    if not accept or any(name in accept for name in _ANY_MULTIPART):
        return Multipart()
    return EventStream() if "text/event-stream" in accept else None


def json_type_for(accept: str) -> str:
    """Choose the type of a single answer."""
    return GRAPHQL_JSON if "application/graphql-response+json" in accept else JSON
