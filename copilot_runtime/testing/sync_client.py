"""A synchronous test client."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from starlette.types import ASGIApp

from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.testing.client import Client, Reply
from copilot_runtime.testing.connection import Response, refuse_running_loop


class SyncClient:
    """A `Client` whose methods need no `await`; it takes the same arguments.

    >>> with SyncClient(runtime) as client:
    ...     assert client.say("Hi").text == "Hello."

    The application runs while a method does; `client.chat` is the `Client`. Opened in an async
    test, it raises `Misuse`.
    """

    def __init__(self, target: CopilotRuntime | ASGIApp | str, **options: Any) -> None:
        self.chat = Client(target, **options)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        refuse_running_loop("A SyncClient", "async with Client(...) as client: await client.say()")
        try:
            self._runner.run(self.chat.__aenter__())
        except BaseException:  # no other code would close the loop
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self.chat.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    def say(self, text: str) -> Reply:
        """Send a message, like `Client.say`."""
        return self._runner.run(self.chat.say(text))

    def answer(self, results: Mapping[str, Any]) -> Reply:
        """Answer calls of the frontend's tools, like `Client.answer`."""
        return self._runner.run(self.chat.answer(results))

    def resume(self, *answers: Any) -> Reply:
        """Answer questions, like `Client.resume`."""
        return self._runner.run(self.chat.resume(*answers))

    def request(
        self, method: str, path: str, json: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send any other request, like `Client.request`."""
        return self._runner.run(self.chat.request(method, path, json, headers=headers))
