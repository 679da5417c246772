"""The timeout for the first event of a model's response."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from copilot_runtime.base.errors import RunStalled

_T = TypeVar("_T")


class FirstTokenLimit:
    """The timeout until the first event; it no longer applies once `has_event` is set.

    `subject` is the prefix of the error message. Without `seconds`, there is no limit.
    """

    def __init__(self, subject: str, seconds: float | None) -> None:
        self.has_event = False
        self._subject = subject
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + (seconds or 0.0)

    def enter(
        self, exchange: AbstractAsyncContextManager[_T, bool | None]
    ) -> AbstractAsyncContextManager[_T, bool | None]:
        """Return the exchange, entering which raises `RunStalled` at the deadline."""
        return exchange if self._seconds is None else self._enter(exchange)

    def read(self, blocks: AsyncIterable[bytes]) -> AsyncIterable[bytes]:
        """Return the blocks of a response, reading which raises `RunStalled` at the deadline."""
        return blocks if self._seconds is None else _LimitedBlocks(blocks, self)

    async def within_deadline(self, awaitable: Awaitable[_T]) -> _T:
        """Await it. Raises `RunStalled` at the deadline."""
        if self.has_event or self._seconds is None:
            return await awaitable
        deadline = asyncio.timeout_at(self._deadline)
        try:
            async with deadline:
                return await awaitable
        except TimeoutError:
            if not deadline.expired():  # it is of the awaitable itself
                raise
            raise RunStalled(
                f"{self._subject}: No first word for {self._seconds:g} seconds.",
                kind="APIConnectionTimeoutError",
                hint="Raise first_token_timeout if the model may think that long.",
            ) from None

    @asynccontextmanager
    async def _enter(
        self, exchange: AbstractAsyncContextManager[_T, bool | None]
    ) -> AsyncGenerator[_T]:
        async with AsyncExitStack() as stack:
            yield await self.within_deadline(stack.enter_async_context(exchange))


class _LimitedBlocks:
    def __init__(self, blocks: AsyncIterable[bytes], limit: FirstTokenLimit) -> None:
        self._blocks = aiter(blocks)
        self._limit = limit

    def __aiter__(self) -> "_LimitedBlocks":
        return self

    async def __anext__(self) -> bytes:
        return await self._limit.within_deadline(anext(self._blocks))
