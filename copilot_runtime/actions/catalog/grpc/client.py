"""Calls methods of one gRPC server, with limits of time and size."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from grpc.aio import AioRpcError, Channel

from copilot_runtime.actions.catalog.grpc.options import Address
from copilot_runtime.errors import (
    AuthenticationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
    RunStalled,
)

_MAX_WORDS = 500
_KEEPALIVE_MS = 30_000
_KEEPALIVE_TIMEOUT_MS = 10_000

_TOO_LARGE = "message larger than max"
"""What gRPC says, on this side or the other, of a message that is not sent or not taken."""

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
        """Return the answer of a method. Raises `CopilotError` for every status but OK."""
        try:
            return await self._open().unary_unary(path)(data, timeout=timeout, metadata=metadata)
        except AioRpcError as error:
            raise self._convert(error, timeout) from error

    async def collect(
        self, path: str, data: bytes, *, metadata: Metadata, timeout: float, max_messages: int
    ) -> list[bytes]:
        """Return all messages of a stream. Raises `LimitExceeded` for one that is too long."""
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
        """Wait until the server is reached. Raises `NetworkError` if it is not."""
        channel = self._open()
        try:
            async with asyncio.timeout(timeout):
                await channel.channel_ready()
        except TimeoutError:
            raise NetworkError(
                f"The gRPC server at {self.address.target!r} cannot be reached."
            ) from None

    async def aclose(self) -> None:
        """Close the connection; calls under way fail."""
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

    def _convert(self, error: AioRpcError, timeout: float) -> CopilotError:
        """Return our error for a status; its `kind` is the name of the status."""
        status = error.code()
        words = " ".join((error.details() or "").split())[:_MAX_WORDS]
        where = f"The gRPC server at {self.address.target!r}"
        sentence = f"{where} says {status.name}" + (f": {words}" if words else ".")
        match status:
            case grpc.StatusCode.UNAVAILABLE:
                return NetworkError(f"{where} cannot be reached.", hint=words, kind=status.name)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return RunStalled(f"{where} did not answer within {timeout:g} s.", kind=status.name)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if _TOO_LARGE in words:
                return LimitExceeded(f"{where}: {words}.", kind=status.name)
            case grpc.StatusCode.RESOURCE_EXHAUSTED:
                return RateLimited(sentence, kind=status.name)
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                return AuthenticationFailed(sentence, kind=status.name)
            case _:
                return CopilotError(sentence, kind=status.name)


def build_metadata(headers: Mapping[str, str]) -> Metadata:
    """Return headers as gRPC wants them: names in lower case, bytes for those that end so."""
    return [
        (name.lower(), value.encode() if name.lower().endswith("-bin") else value)
        for name, value in headers.items()
    ]


def build_credentials(
    ca: bytes | None, key: bytes | None, certificate: bytes | None
) -> grpc.ChannelCredentials:
    """Return what TLS needs, from files in PEM; without an authority, gRPC's own are trusted."""
    return grpc.ssl_channel_credentials(ca, key, certificate)
