"""A Python client for the gRPC services: a channel that signs each call.

>>> async with connect("grpc://vectors:50051", service="chat", secrets=[secret]) as channel: ...
vector = VectorStub(channel) ...     found = await
vector.SearchContent(SearchContentRequest(input=["opening hours"]))
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf.message import Message
from grpc.aio import Channel, UnaryStreamCall, UnaryUnaryCall

from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner, TokenForm
from copilot_runtime.extensions.grpc.names import build_user_metadata, name_operation
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.rpc import count_items, start_rpc_span
from copilot_runtime.telemetry.span import Span, find_current_span, inject_context, work_under

TIMEOUT = 60.0
"""Default timeout of unary calls, in seconds."""
MAX_BYTES = 16 * 1024 * 1024
_KEEPALIVE_MS = 30_000
_TLS = {"grpc": False, "grpcs": True}
_UNTRACED = "/copilot.trace.v1.Trace/"
"""Calls of this service have no spans: each span would cause the next one."""

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: the trusted authority, and the certificate and key of this client (mTLS).

    `server_name` is the name in the server's certificate, if it differs from the host.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def build_credentials(self) -> grpc.ChannelCredentials:
        """Read the files. Raises `ConfigurationFailed`."""
        ca, key, certificate = map(_read, (self.ca, self.key, self.certificate))
        return grpc.ssl_channel_credentials(ca, key, certificate)


class Connection:
    """Opens a channel on the first call, because gRPC needs an event loop for it."""

    def __init__(self, open: Callable[[], Channel]) -> None:
        self._open = open
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """The channel of the event loop of the first call."""
        if self._channel is None:
            self._channel = self._open()
        return self._channel

    async def aclose(self) -> None:
        """Close the channel, if it was opened."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


class ServiceChannel(AbstractAsyncContextManager["ServiceChannel"]):
    """A connection that generated stubs accept as their channel. Use it in one event loop.

    Each call is signed for its method and its message, unless `signer` is None. Under a span, it
    has a span of its own, below which is that of the server. Calls are made on behalf of `user` and
    `tenant`; this requires the scope `operate` in the called service.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        signer: ServiceTokenSigner | None = None,
        token: str = "",
        user: str = "",
        tenant: str = "",
        timeout: float = TIMEOUT,
        target: str = "",
    ) -> None:
        self._connection = connection
        self._target = target
        self._signer = signer
        self._token = token
        self._for = (user, tenant)
        self._timeout = timeout

    def act_for(self, user: str, tenant: str = "") -> "ServiceChannel":
        """Return the same connection for calls on behalf of a user."""
        return ServiceChannel(
            self._connection,
            signer=self._signer,
            token=self._token,
            user=user,
            tenant=tenant,
            timeout=self._timeout,
            target=self._target,
        )

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = None,
    ) -> Callable[..., UnaryUnaryCall[Any, Any]]:
        """Return a callable for a unary method, as stubs require."""

        def open_call(read: Deserializer | None) -> Any:
            return self._connection.channel.unary_unary(method, None, read)

        serialize = request_serializer or _serialize
        return self._wrap(method, open_call, serialize, response_deserializer, self._timeout)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = None,
    ) -> Callable[..., UnaryStreamCall[Any, Any]]:
        """Return a callable for a method with a response stream, as stubs require."""

        def open_call(read: Deserializer | None) -> Any:
            return self._connection.channel.unary_stream(method, None, read)

        serialize = request_serializer or _serialize
        return self._wrap(method, open_call, serialize, response_deserializer, None)

    def stream_unary(
        self,
        method: str,
        request_serializer: Serializer | None = None,
        response_deserializer: Deserializer | None = None,
        _registered_method: bool | None = None,
    ) -> Callable[..., Any]:
        """Return a callable that raises an error: a token is valid for one message."""
        del request_serializer, response_deserializer

        def refuse(*_: Any, **__: Any) -> Any:
            raise Misuse(f"{method} takes a stream of messages, which cannot be signed.")

        return refuse

    stream_stream = stream_unary

    def _wrap(
        self,
        method: str,
        open_call: Callable[[Deserializer | None], Any],
        serialize: Serializer,
        deserialize: Deserializer | None,
        usual: float | None,
    ) -> Callable[..., Any]:
        def start(
            request: Any,
            *,
            timeout: float | None = usual,
            metadata: Iterable[tuple[str, str | bytes]] | None = None,
        ) -> Any:
            body = serialize(request)
            parent = find_current_span()
            if not parent.is_recording or method.startswith(_UNTRACED):
                every = [*self.build_metadata(method, body), *(metadata or ())]
                return open_call(deserialize)(body, timeout=timeout, metadata=every)
            traced = _TracedCall(self._start_span(parent, method), deserialize)
            traced.note_request(request)
            with work_under(traced.span):
                every = [*self.build_metadata(method, body), *(metadata or ())]
            call = open_call(traced.read)(body, timeout=timeout, metadata=every)
            call.add_done_callback(traced.end_later)
            return call

        return start

    def _start_span(self, parent: Span, method: str) -> Span:
        host, _, port = self._target.rpartition(":")
        if not port.isdecimal():  # a Unix socket
            host, port = self._target, ""
        number = int(port) if port else None
        return start_rpc_span(parent, method.removeprefix("/"), host=host.strip("[]"), port=number)

    def build_metadata(self, method: str, body: bytes) -> list[tuple[str, str]]:
        """Return the caller, the user and the span as metadata. A token is valid for one call."""
        user, tenant = self._for
        names = {**inject_context(find_current_span()), **build_user_metadata(user, tenant)}
        found = [*names.items()]
        token = self._token
        if self._signer is not None:
            token = self._signer.sign(name_operation(method, user, tenant), body)
        return [*found, ("authorization", f"Bearer {token}")] if token else found

    async def aclose(self) -> None:
        """Close the connection; current calls fail."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def connect(
    address: str,
    *,
    service: str = "",
    secrets: Sequence[str] = (),
    form: TokenForm = "bound",
    token: str = "",
    user: str = "",
    tenant: str = "",
    tls: Tls | None = None,
    timeout: float = TIMEOUT,
    max_bytes: int = MAX_BYTES,
) -> ServiceChannel:
    """Return a connection to `grpc://host:port`, `grpcs://host:port` (TLS) or `unix:/path`.

    `service` is the name of the caller, which signs with the first of the `secrets`; alternatively
    `token` is an API key or a JWT. The connection opens on the first call. Raises
    `ConfigurationFailed`.
    """
    target, has_tls = parse_address(address)
    options: list[tuple[str, Any]] = [
        ("grpc.max_send_message_length", max_bytes),
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ]
    if has_tls or tls is not None:
        tls = tls or Tls()
        if tls.server_name:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        credentials = tls.build_credentials()
        connection = Connection(lambda: grpc.aio.secure_channel(target, credentials, options))
    else:
        connection = Connection(lambda: grpc.aio.insecure_channel(target, options))
    signer = ServiceTokenSigner(service, secrets, form=form) if service or secrets else None
    return ServiceChannel(
        connection,
        signer=signer,
        token=token,
        user=user,
        tenant=tenant,
        timeout=timeout,
        target=target,
    )


def parse_address(address: str) -> tuple[str, bool]:
    """Return gRPC's target, and whether it uses TLS. Raises `ConfigurationFailed`."""
    if address.startswith("unix:"):
        return address, False
    scheme, separator, rest = address.rpartition("://")
    has_tls = _TLS.get(scheme if separator else "grpc")
    if has_tls is None or ":" not in rest:
        raise ConfigurationFailed(
            f"{address!r} is no address of a gRPC server.",
            hint="Write grpc://host:port, grpcs://host:port for TLS, or unix:/path.",
        )
    return rest.rstrip("/"), has_tls


class _TracedCall:
    """The span of a call: with what was sent and received, and the status as its end."""

    def __init__(self, span: Span, deserialize: Deserializer | None) -> None:
        self.span = span
        self._deserialize = deserialize
        self._messages = 0
        self._last: Any = None
        self._tasks: set[asyncio.Task[None]] = set()

    def note_request(self, request: object) -> None:
        self.span.add_event(semconv.EVENT_REQUEST_SENT, count_items("request", request))

    def read(self, data: bytes) -> Any:
        """Return the decoded message."""
        self._messages += 1
        self._last = data if self._deserialize is None else self._deserialize(data)
        return self._last

    def end_later(self, call: Any) -> None:
        """End the span in the next step of the event loop, when the message has been read."""
        task = asyncio.ensure_future(self._end(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self, call: Any) -> None:
        code: grpc.StatusCode = await call.code()
        if code is grpc.StatusCode.OK:
            is_stream = isinstance(call, UnaryStreamCall)
            counts = {semconv.RESPONSE_MESSAGES: self._messages} if is_stream else {}
            if self._messages and not is_stream:
                counts = count_items("response", self._last)
            self.span.add_event(semconv.EVENT_RESPONSE_RECEIVED, counts)
        else:
            self.span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: code.name})
            self.span.fail(code.name, await call.details() or "")
        self.span.end()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise ConfigurationFailed(f"{path} cannot be read: {error.strerror}.") from error
