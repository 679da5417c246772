"""The interface to the other server processes that share a store of threads."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from copilot_runtime.api.bus import START, Batch, Cursor
from copilot_runtime.threads.store import RunningRun, ThreadKey

Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Handles a request of another process and returns a JSON value."""

TakeNotice = Callable[[str, Mapping[str, Any]], None]
"""Gets the address of another process and the values it sent. Must not block or raise."""


class Peers(Protocol):
    """Sends requests about runs to the other processes. Implemented by the extension `cluster`."""

    @property
    def address(self) -> str:
        """The address at which others reach this process; empty while they cannot."""
        ...

    @property
    def is_reachable(self) -> bool:
        """`True` if the other processes are believed to be reachable."""
        ...

    def add_answer(self, question: str, answer: Answer) -> None:
        """Register the handler for a kind of request from other processes."""

    def add_notice(self, name: str, take: TakeNotice) -> None:
        """Register the handler for a kind of notice from other processes."""

    async def has_others(self) -> bool:
        """Return `True` if other processes use the store."""
        ...

    async def find_run(self, thread: ThreadKey) -> RunningRun | None:
        """Return the active run of another process in a thread, or `None`."""
        ...

    async def follow(
        self, thread: ThreadKey, run: RunningRun, after: Cursor = START
    ) -> AsyncGenerator[Batch, None] | None:
        """Return the log of a run of another process, from a cursor on; `None` without one."""
        ...

    async def ask(self, server: str, question: str, *, timeout: float = ..., **values: Any) -> Any:
        """Send a request to one process.

        Raises `PeerLost` if it does not answer in time, or dies.
        """

    async def ask_owner(
        self, thread: ThreadKey, question: str, *, timeout: float = ..., **values: Any
    ) -> Any:
        """Send a request to the process with a thread's run. Returns `None` if there is none."""

    async def ask_all(
        self, question: str, *, timeout: float = ..., **values: Any
    ) -> tuple[str, Any] | None:
        """Send a request to all processes.

        Returns the first non-null answer with its address, or `None`.
        """
        ...

    def tell(self, server: str, name: str, **values: Any) -> None:
        """Send a notice to another process, without confirmation of its delivery."""

    async def aclose(self) -> None:
        """Close the connections to the other processes."""
