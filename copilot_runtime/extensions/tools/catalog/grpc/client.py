"""A client of one gRPC server, with timeouts and size limits."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from grpc.aio import AioRpcError, Channel

from copilot_runtime.base.errors import CopilotError, LimitExceeded, NetworkError
from copilot_runtime.extensions.grpc.errors import convert_rpc_error, read_details
from copilot_runtime.extensions.tools.catalog.grpc.options import Address

_KEEPALIVE_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 10_000

_HEALTH = "/grpc.health.v1.Health/Check"

_READY = grpc.ChannelConnectivity.READY
_FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE

Metadata = Sequence[tuple[str, str | bytes]]


class Client:
    """A connection to a server, opened by the first call. Use it in one event loop."""

    def __init__(
        self,
        address: Address,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        server_name: str = "",
        max_request: int,
        max_response: int,
    ) -> None:
        self.address = address
        self.max_response = max_response
        self._credentials = credentials
        self._options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", max_request),
            ("grpc.max_receive_message_length", max_response),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
            ("grpc.primary_user_agent", "copilot-runtime"),
        ]
        if server_name:
            self._options.append(("grpc.ssl_target_name_override", server_name))
        if address.is_local:
            self._options.append(("grpc.enable_http_proxy", 0))
        self._channel: Channel | None = None

    async def call(self, path: str, data: bytes, *, metadata: Metadata, timeout: float) -> bytes:
        """Return the response of a unary method. Raises `CopilotError` for any status but OK."""
        try:
            return await self._open().unary_unary(path)(data, timeout=timeout, metadata=metadata)
        except AioRpcError as error:
            raise self._convert(error, timeout) from error

    async def collect(
        self, path: str, data: bytes, *, metadata: Metadata, timeout: float, max_messages: int
    ) -> list[bytes]:
        """Return all messages of a stream. Raises `LimitExceeded` if it is too long."""
        stream = self._open().unary_stream(path)(data, timeout=timeout, metadata=metadata)
        messages: list[bytes] = []
        size = 0
        try:
            async for message in stream:
                messages.append(message)
                size += len(message)
                if size > self.max_response:
                    raise LimitExceeded(
                        f"The stream of {path} has more than {self.max_response} bytes."
                    )
                if len(messages) > max_messages:
                    raise LimitExceeded(
                        f"The stream of {path} has more than {max_messages} messages."
                    )
        except AioRpcError as error:
            raise self._convert(error, timeout) from error
        finally:
            stream.cancel()
        return messages

    async def connect(self, timeout: float) -> None:
        """Wait until the server is connected. Raises `NetworkError` on failure."""
        channel, cause = self._open(), ""
        try:
            async with asyncio.timeout(timeout):
                while (state := channel.get_state(try_to_connect=True)) is not _READY:
                    if state is _FAILED and (cause := await self._find_cause(timeout)):
                        break
                    await channel.wait_for_state_change(state)
                else:
                    return
        except TimeoutError:
            pass
        raise NetworkError(f"{self._name} cannot be reached.", hint=cause)

    async def aclose(self) -> None:
        """Close the connection; current calls fail."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _open(self) -> Channel:
        if self._channel is None:
            target = self.address.target
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(target, self._options)
            else:
                self._channel = grpc.aio.secure_channel(target, self._credentials, self._options)
        return self._channel

    async def _find_cause(self, timeout: float) -> str:
        """Return why the connection failed, from a test call. Channels do not report it."""
        try:
            await self._open().unary_unary(_HEALTH)(b"", timeout=timeout)
        except AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return read_details(error)
        return ""

    def _convert(self, error: AioRpcError, timeout: float) -> CopilotError:
        return convert_rpc_error(error, self._name, timeout)

    @property
    def _name(self) -> str:
        return f"The gRPC server at {self.address.target!r}"


def build_metadata(headers: Mapping[str, str]) -> Metadata:
    """Return headers as gRPC metadata: lower-case names, and bytes for names that end in `-bin`."""
    return [
        (name.lower(), value.encode() if name.lower().endswith("-bin") else value)
        for name, value in headers.items()
    ]


def build_credentials(
    ca: bytes | None, key: bytes | None, certificate: bytes | None
) -> grpc.ChannelCredentials:
    """Return TLS credentials from PEM files; without an authority, gRPC's roots are trusted."""
    return grpc.ssl_channel_credentials(ca, key, certificate)
