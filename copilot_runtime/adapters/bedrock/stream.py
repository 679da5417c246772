"""Decodes Amazon's event streams, and translates the events of `ConverseStream` into ours.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html. Each
payload is an object with one member. Blocks have indexes, and may interleave.
"""

from base64 import b64decode, b64encode
from functools import lru_cache
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from zlib import crc32

import orjson

from copilot_runtime.adapters.attachments import image_activity
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.invalid_answers import find_malformed_answer
from copilot_runtime.adapters.json_reader import JSONReader
from copilot_runtime.adapters.stop_reasons import map_stop_reason
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.base.errors import NetworkError
from copilot_runtime.base.jsonvalue import JsonObject, add_counts, as_count, as_object

LIMIT = 24 * 1024 * 1024
"""The largest message, in bytes; Amazon sends none beyond 24 MiB."""

_PRELUDE = Struct(">III")
_CHECKSUM = Struct(">I")
_FRAME = _PRELUDE.size + _CHECKSUM.size


class Frames:
    """An incremental decoder: `feed` takes blocks of bytes and returns the complete messages.

    A message is its length, the length of its headers, a checksum of both, headers, payload, and a
    checksum of it all: https://smithy.io/2.0/aws/amazon-eventstream.html. `botocore` parses the
    headers, of which a stream repeats a handful; its `EventStreamBuffer` would cost six times as
    much. Each message is JSON text in the shape of the API's reference: an object with one member,
    named after the event or the exception. Raises `NetworkError` for another format or a damaged
    stream.
    """

    is_between_events = False  # nothing may stand there
    other_text = b""
    """The beginning of a response that is no event stream."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.is_event_stream = False
        self._limit = limit
        self._rest = bytearray()  # the beginning of a message, and the bytes needed to go on
        self._needed = _PRELUDE.size

    def feed(self, block: bytes) -> list[bytes]:
        """Return every message that ends in this block."""
        self._rest += block
        if len(self._rest) < self._needed:
            return []
        data, start, self._needed = bytes(self._rest), 0, _PRELUDE.size
        messages: list[bytes] = []
        while len(data) - start >= _PRELUDE.size:
            size, headers_size, checksum = _PRELUDE.unpack_from(data, start)
            if size > len(data) - start or size > self._limit or headers_size > size - _FRAME:
                self._check_prelude(data[start:], size, headers_size, checksum)
                self._needed = size
                break
            end = start + size - _CHECKSUM.size
            if crc32(data[start:end]) != _CHECKSUM.unpack_from(data, end)[0]:
                raise self._damage_error(data[start:])
            payload = start + _PRELUDE.size + headers_size
            opening, is_whole = _opening(data[start + _PRELUDE.size : payload])
            if opening:
                text = b"" if is_whole else (data[payload:end] or b"{}") + b"}"
                messages.append(opening + text)
            start = end + _CHECKSUM.size
            self.is_event_stream = True
        del self._rest[:start]
        return messages

    def finish(self) -> list[bytes]:
        """Return an empty list: an incomplete message is discarded."""
        return []

    def _check_prelude(self, data: bytes, size: int, headers_size: int, checksum: int) -> None:
        """Raise `NetworkError` if the prelude is damaged or announces too large a message."""
        if crc32(data[:8]) != checksum:
            raise self._damage_error(data)
        if headers_size + _FRAME > size or size > self._limit:
            raise NetworkError(
                f"Bedrock API error: The answer holds an event of {size} bytes.",
                hint=f"Its headers are {headers_size} bytes; up to {self._limit} in all are read.",
            )

    def _damage_error(self, data: bytes) -> NetworkError:
        if self.is_event_stream:
            return NetworkError(
                "Bedrock API error: The answer was damaged on its way.",
                hint="The checksum of an event is wrong.",
            )
        self.other_text = data
        return NetworkError(
            "Bedrock API error: The answer is not an event stream.",
            hint=f"Is the base URL right? It sent {data[:100].decode(errors='replace')!r}.",
        )


@lru_cache(maxsize=64)  # a stream repeats a handful of them
def _opening(header_bytes: bytes) -> tuple[bytes, bool]:
    """Return the JSON text before the payload, and whether it is already the whole message."""
    eventstream = import_module("botocore.eventstream")
    try:
        headers = eventstream.EventStreamHeaderParser().parse(header_bytes)
    except (eventstream.ParserError, KeyError, struct_error, UnicodeDecodeError) as error:
        raise NetworkError(
            "Bedrock API error: The answer holds an event with unreadable headers."
        ) from error
    match headers.get(":message-type"):
        case "event":
            name = headers.get(":event-type")
        case "exception":
            name = headers.get(":exception-type")
        case "error":  # everything is in the headers
            error = {"message": headers.get(":error-message"), "code": headers.get(":error-code")}
            return orjson.dumps({"error": error}), True
        case _:
            name = None
    return (b"{%b:" % orjson.dumps(name) if name else b""), False


class ConverseReader(JSONReader):
    """Reads one response of `ConverseStream`."""

    def __init__(self, request: ChatRequest, service: Service) -> None:
        super().__init__(request, service)
        self._elsewhere: set[int] = set()  # blocks of tools that run at Amazon
        self._pieces: dict[int, tuple[str, list[str]]] = {}
        """Block → the kind of its chunks, and chunks that can only be decoded together."""
        self._usage: JsonObject = {}

    def _conclude(self) -> list[Event]:
        """Return the `Usage`; without counts, it has the stop reason only."""
        counts, cached = self._usage, ("cacheReadInputTokens", "cacheWriteInputTokens")
        usage = Usage(
            model=self._model,
            input_tokens=add_counts(counts, "inputTokens", *cached),
            output_tokens=as_count(counts.get("outputTokens")),
            cached_tokens=as_count(counts.get(cached[0])),
            cache_write_tokens=as_count(counts.get(cached[1])),
            provider="bedrock",
            stop_reason=self._stop,
        )
        return [usage]

    def _take(self, data: JsonObject) -> None:
        if event := data.get("contentBlockDelta"):  # nearly always
            if text := event["delta"].get("text"):
                self._assembly.text(text)
            else:
                self._take_delta(event["contentBlockIndex"], event["delta"])
            return
        for name, event in data.items():
            match name:
                case "contentBlockStart":
                    self._take_start(event["contentBlockIndex"], event["start"])
                case "contentBlockStop":
                    self._take_stop(event["contentBlockIndex"])
                case "messageStart":
                    self._assembly.begin("")
                case "messageStop":
                    self._finish(event.get("stopReason") or "")
                case "metadata":
                    self._usage = as_object(event.get("usage"))
                    self.done = self.finished
                case "error":
                    raise read_stream_error(self._service, event)
                case _ if name.endswith(("Exception", "Error")):
                    raise read_stream_error(self._service, {**event, "type": name})
                case _:
                    pass

    def _take_start(self, at: int, start: JsonObject) -> None:
        if use := start.get("toolUse"):
            if use.get("type"):
                self._elsewhere.add(at)
            else:
                self._assembly.call(at, use["toolUseId"], use["name"], "")
        elif image := start.get("image"):
            self._pieces[at] = (f"image/{image['format']}", [])

    def _take_delta(self, at: int, delta: JsonObject) -> None:
        if use := delta.get("toolUse"):
            if use["input"] and at not in self._elsewhere:
                self._assembly.call(at, "", "", use["input"])
        elif thought := delta.get("reasoningContent"):
            self._take_thought(at, thought)
        elif data := ((delta.get("image") or {}).get("source") or {}).get("bytes"):
            self._pieces[at][1].append(data)

    def _take_thought(self, at: int, thought: JsonObject) -> None:
        if text := thought.get("text"):
            self._assembly.reasoning(text)
            return
        for name in ("signature", "redactedContent"):
            if piece := thought.get(name):
                self._pieces.setdefault(at, (name, []))[1].append(piece)

    def _take_stop(self, at: int) -> None:
        assembly = self._assembly
        assembly.end_call(at)
        match self._pieces.pop(at, None):
            case "signature", pieces:
                assembly.add_thought_fields({"signature": "".join(pieces)})
                assembly.end_block()
            case "redactedContent", pieces:
                assembly.end_block()
                assembly.add_thought_fields({"redactedContent": _join(pieces)})
                assembly.end_block()
            case mime_type, pieces if pieces:  # else no image could be made
                assembly.end_block()
                assembly.events.append(image_activity(mime_type, _join(pieces)))
            case _:
                pass

    def _finish(self, reason: str) -> None:
        if reason == "content_filtered":
            raise self._service.content_filter_error()
        if (error := find_malformed_answer(self._service, reason)) is not None:
            raise error
        self.finished = True
        self._stop = map_stop_reason(reason) or None
        if reason == "guardrail_intervened":  # the answer is in words of the application's own
            self._stop = "content_filter"
        self._end_answer()


def _join(pieces: list[str]) -> str:
    """Join several base64 texts into one."""
    return pieces[0] if len(pieces) == 1 else b64encode(b"".join(map(b64decode, pieces))).decode()
