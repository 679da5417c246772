"""The OTLP/HTTP receiver for spans and logs of other processes.

https://opentelemetry.io/docs/specs/otlp/#otlphttp. The receiver makes no spans, and received
spans are not exported: two servers that export to each other would loop forever.
"""

import asyncio
import hmac
import logging
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, assert_never

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.extensions.tracing.otlp import (
    Batch,
    OtlpError,
    Signal,
    count_metrics,
    decode_logs,
    decode_spans,
)
from copilot_runtime.extensions.tracing.store.records import decode_span
from copilot_runtime.extensions.tracing.store.store import TraceStore
from copilot_runtime.security.loopback import LoopbackGuard, is_forwarded, is_loopback
from copilot_runtime.telemetry.log_records import LogBuffer, LogRecord
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport

logger = logging.getLogger(__name__)

_SIGNALS: Mapping[str, Signal] = {
    "v1/traces": "traces",
    "v1/metrics": "metrics",
    "v1/logs": "logs",
}
_REJECTED: Mapping[Signal, str] = {
    "traces": "rejectedSpans",
    "metrics": "rejectedDataPoints",
    "logs": "rejectedLogRecords",
}
_JSON = "application/json"
_PROTOBUF = "application/x-protobuf"
_STATUS_CODES = {400: 3, 401: 16, 403: 7, 408: 4, 413: 8, 415: 3}
"""gRPC status codes of OTLP errors, by HTTP status."""
_UNKNOWN = 2
_NO_METRICS = (
    "This server keeps traces and logs, and no metrics of others: set OTEL_METRICS_EXPORTER=none, "
    "or let Prometheus read them where they are."
)
_LARGE = 64 * 1024
"""Body size in bytes above which a request is decoded in a thread."""


class OtlpEndpoint(Transport):
    """The OTLP endpoint. It stores spans beside ours, and logs as span events, but no metrics."""

    paths = tuple(_SIGNALS)
    root_paths = paths
    for_programs = True
    has_own_auth = True

    def __init__(self, services: Services) -> None:
        settings = narrow_settings(services.settings)
        self._telemetry = services.telemetry
        self._logs = LogJoiner(services.telemetry)
        self._receive = settings.telemetry.receive
        self._guard = LoopbackGuard()
        self._token = settings.telemetry.receive_token
        self._max_body_bytes = settings.max_body_bytes

    async def accepts(self, request: Request) -> bool:
        is_on = self._receive != "off" and self._telemetry.is_recording
        return is_on and not request.is_websocket

    async def __call__(self, request: Request) -> None:
        signal = _SIGNALS[request.path]
        media_type = request.content_type
        try:
            if request.method != "POST":
                raise BadRequest("OTLP is sent by POST.", 405, allow="POST")
            self._authorize(request)
            if media_type not in (_JSON, _PROTOBUF):
                raise BadRequest(f"OTLP comes as {_JSON} or {_PROTOBUF}.", 415)
            body = _decompress(request, await request.body(), self._max_body_bytes)
            if len(body) > _LARGE:
                batch = await asyncio.to_thread(self._decode, request, signal, body)
            else:
                batch = self._decode(request, signal, body)
        except BadRequest as error:
            await _refuse(request, error)
            return
        except OtlpError as error:
            await _refuse(request, BadRequest(str(error)))
            return
        except MissingPackage as error:
            logger.warning("Refused OTLP: %s %s", error.message, error.hint or "")
            await _refuse(request, BadRequest(f"This server reads OTLP as {_JSON} only.", 415))
            return
        for span in batch.spans:
            self._telemetry.import_span(span)
        if batch.logs:
            await self._logs.join(batch.logs)
        await _respond(request, signal, batch)

    def _authorize(self, request: Request) -> None:
        """Raise `BadRequest` if the client may not send telemetry."""
        if self._receive == "token":
            word, _, token = request.headers.get("authorization", "").partition(" ")
            is_right = hmac.compare_digest(self._token.encode(), token.strip().encode("latin-1"))
            if word.lower() != "bearer" or not is_right:
                raise BadRequest("The token for sending telemetry is missing or wrong.", 401)
            return
        client = request.scope.get("client")
        is_near = client is not None and is_loopback(client[0])
        # a proxy of this machine may say nothing of itself, but it serves another name
        is_own = self._guard.is_own_name(request.headers.get("host", ""))
        if not (is_near and is_own) or is_forwarded(request.headers):
            raise BadRequest(
                "Telemetry is taken from this machine only. The setting telemetry.receive lets "
                "others send it, with a token.",
                403,
            )

    def _decode(self, request: Request, signal: Signal, body: bytes) -> Batch:
        """Decode a request. Raises `BadRequest`, `OtlpError` or `MissingPackage`."""
        is_json = request.content_type == _JSON
        if is_json:
            request.check_json(body)
        match signal:
            case "traces":
                value = _read_json(body) if is_json else _import_protobuf().decode_traces(body)
                return decode_spans(value, keeps_content=self._telemetry.keeps_content)
            case "logs":
                value = _read_json(body) if is_json else _import_protobuf().decode_logs(body)
                return decode_logs(value, keeps_content=self._telemetry.keeps_content)
            case "metrics":
                value = _read_json(body) if is_json else None
                count = count_metrics(value) if is_json else _import_protobuf().count_metrics(body)
                return Batch((), count, _NO_METRICS if count else "")
            case _:
                assert_never(signal)


def _read_json(body: bytes) -> Any:
    try:
        return loads(body or b"{}")
    except ValueError as error:
        raise OtlpError("The request body is no JSON.") from error


def _import_protobuf() -> Any:
    """Import the protobuf decoder. Raises `MissingPackage`."""
    try:
        return import_module("copilot_runtime.extensions.tracing.otel.protobuf")
    except ImportError as error:
        package = error.name or "opentelemetry-proto"
        raise MissingPackage("OTLP in protobuf", package, "telemetry") from error


def _decompress(request: Request, body: bytes, limit: int) -> bytes:
    """Decompress a gzip body up to `limit` bytes. Raises `BadRequest`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise BadRequest("OTLP is compressed by gzip, or not at all.", 415)
    decoder = zlib.decompressobj(wbits=31)
    try:
        plain = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest("The request body is no gzip.") from error
    if len(plain) > limit:
        raise BadRequest(f"The request has more than {limit} bytes when it is unpacked.", 413)
    if not decoder.eof or decoder.unused_data:
        raise BadRequest("The gzip of the request body is incomplete.")
    return plain


async def _respond(request: Request, signal: Signal, batch: Batch) -> None:
    """Send a success response, with the number of rejected items."""
    if request.content_type == _JSON:
        body: dict[str, Any] = {}
        if batch.rejected:
            partial = {_REJECTED[signal]: str(batch.rejected), "errorMessage": batch.reason}
            body = {"partialSuccess": partial}
        await request.respond(200, dumps(body))
        return
    answer = b""
    if batch.rejected:
        partial = _encode_int(1, batch.rejected) + _encode_bytes(2, batch.reason.encode())
        answer = _encode_bytes(1, partial)
    await request.respond(200, answer, content_type=_PROTOBUF, headers=_type_of(answer))


async def _refuse(request: Request, error: BadRequest) -> None:
    """Send an error `Status` in the request's format."""
    code = _STATUS_CODES.get(error.status, _UNKNOWN)
    if request.content_type == _PROTOBUF:
        answer = _encode_int(1, code) + _encode_bytes(2, error.message.encode())
        await request.respond(error.status, answer, content_type=_PROTOBUF, headers=error.headers)
    else:
        body = dumps({"code": code, "message": error.message})
        await request.respond(error.status, body, headers=error.headers)


def _type_of(answer: bytes) -> Mapping[str, str]:
    """Return the content type for an empty response, which OTLP requires as well."""
    return {} if answer else {"content-type": _PROTOBUF}


def _encode_int(field: int, value: int) -> bytes:
    """Encode an integer field as protobuf, without a dependency."""
    return bytes([field << 3]) + _encode_varint(value)


def _encode_bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _encode_varint(len(value)) + value


def _encode_varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


class LogJoiner:
    """Attaches log records to stored spans, and buffers the others until their spans arrive."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def join(self, records: Sequence[LogRecord]) -> None:
        """Add records to their stored spans; buffer the records of other spans."""
        self._telemetry.import_logs(records)
        store: Any = getattr(self._telemetry, "store", None)
        logs: Any = getattr(self._telemetry, "logs", None)
        if not (isinstance(store, TraceStore) and isinstance(logs, LogBuffer)):
            return
        async with store.edits:
            for trace_id in {record.trace_id: None for record in records}:
                found = {span["span_id"]: span for span in await store.get_trace(trace_id)}
                for span_id in logs.find_spans(trace_id, found):
                    self._telemetry.import_span(decode_span(found[span_id]))
