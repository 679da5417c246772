"""The session of the package `mcp`, without its check of results, and with a sign of its end."""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from mcp_types import CallToolResult, Implementation
from pydantic import ValidationError

from mcp import ClientSession, MCPError
from mcp.client.session import MessageHandlerFnT

_US = Implementation(name="copilot-runtime", version="1")


class Client(ClientSession):
    """A session with a server, to be entered and left in one task."""

    def __init__(
        self,
        read: "EndNotifyingStream",
        write: Any,
        message_handler: MessageHandlerFnT,
        extensions: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(
            read,
            write,
            message_handler=message_handler,
            client_info=_US,
            extensions={name: dict(value) for name, value in extensions.items()} or None,
        )

    async def handshake(self) -> None:
        """Agree on a version: by `initialize`, then by `discover`, for servers without sessions.

        In this order, because a server behind pipes may never answer an unknown method.
        """
        try:
            await self.initialize()
        except (MCPError, ValidationError):
            await self.discover()

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Accept every result.

        A model can read a result that does not fit the tool's schema, and a schema may have a
        pattern that takes Python hours.
        """


class EndNotifyingStream:
    """A stream that sets an event at its end; a session notices it at its next request only."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Context | None:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "EndNotifyingStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._ended.set()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
