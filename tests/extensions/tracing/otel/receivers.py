"""Receivers of OTLP on loopback, by gRPC and over HTTP, that keep what they get."""

import gzip
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import (  # pyright: ignore[reportMissingTypeStubs]
    logs_service_pb2 as logs,
)
from opentelemetry.proto.collector.logs.v1 import (  # pyright: ignore[reportMissingTypeStubs]
    logs_service_pb2_grpc as logs_grpc,
)
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

REQUESTS: dict[str, Any] = {
    "/v1/traces": traces.ExportTraceServiceRequest,
    "/v1/metrics": metrics.ExportMetricsServiceRequest,
    "/v1/logs": logs.ExportLogsServiceRequest,
}


class Inbox:
    """What a receiver got: the messages, the bytes, and the headers of each request."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.messages: list[Any] = []
        self.body = b""
        self.has_come = threading.Event()

    def add(self, path: str, message: Any, headers: dict[str, str]) -> None:
        self.paths.append(path)
        self.headers.append(headers)
        self.messages.append(message)
        self.body += message.SerializeToString()
        self.has_come.set()

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for message in self.messages
            if isinstance(message, traces.ExportTraceServiceRequest)
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            metric.name: metric
            for message in self.messages
            if isinstance(message, metrics.ExportMetricsServiceRequest)
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    @property
    def events(self) -> list[Any]:
        return [
            record
            for message in self.messages
            if isinstance(message, logs.ExportLogsServiceRequest)
            for resource in message.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


def read_attributes(pairs: Any) -> dict[str, Any]:
    """Return attributes of OTLP as JSON has them."""
    return {pair.key: _read_value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _read_value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "kvlist_value":
        return read_attributes(value.kvlist_value.values)
    if kind == "array_value":
        return [_read_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def serve_http(answer: Callable[[BaseHTTPRequestHandler], None] | None = None) -> Generator[Inbox]:
    """Serve OTLP over HTTP; `answer` writes another answer than 200 without a body."""
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            path = self.path[self.path.index("/v1/") :]
            headers = {name.lower(): value for name, value in self.headers.items()}
            inbox.add(self.path, REQUESTS[path].FromString(body), headers)
            if answer is not None:
                answer(self)
                return
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing: clients may leave."""

    server = Server(("127.0.0.1", 0), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def serve_grpc() -> Generator[Inbox]:
    """Serve OTLP by gRPC."""
    inbox = Inbox()

    class Service:
        def __init__(self, path: str, answer: Any) -> None:
            self.path = path
            self.answer = answer

        def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            headers = {str(name): str(value) for name, value in context.invocation_metadata()}
            inbox.add(self.path, request, headers)
            return self.answer()

    server = grpc.server(ThreadPoolExecutor(2))
    add: list[tuple[Any, str, Any]] = [
        (
            traces_grpc.add_TraceServiceServicer_to_server,
            "/v1/traces",
            traces.ExportTraceServiceResponse,
        ),
        (
            metrics_grpc.add_MetricsServiceServicer_to_server,
            "/v1/metrics",
            metrics.ExportMetricsServiceResponse,
        ),
        (logs_grpc.add_LogsServiceServicer_to_server, "/v1/logs", logs.ExportLogsServiceResponse),
    ]
    for add_to, path, answer in add:
        add_to(Service(path, answer), server)
    inbox.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield inbox
    finally:
        server.stop(None).wait()
