"""One run on a LangGraph server, followed to its end: a broken connection is taken up again.

Not by the SDK's own stream: it waits a second or more before it comes back, counts an event that
was cut before its id as said, which then comes twice, and takes six times as long for each.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from copilot_runtime.agents.langgraph.errors import broken, refusal, strange
from copilot_runtime.agents.langgraph.resume import Seen
from copilot_runtime.agents.langgraph.sse import Frame, NamedFrames
from copilot_runtime.errors import CopilotError, IncompleteStream, NetworkError, RunStalled
from copilot_runtime.http.client import Exchange, Reply, Upstream
from copilot_runtime.http.retries import backoff
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import as_object

_ATTEMPTS = 5
"""How often in a row a run is taken up again without a word from it."""

_PATIENCE = 5.0
_RUN = re.compile(r"/threads/[^/]+/runs/([^/?]+)")
_GOING_ON = ("pending", "running")

Status = Callable[[str], Awaitable[str]]


class RunStream:
    """Begins a run and reads what it tells. `run_id` is known once the server has answered.

    `agent` is how errors call it; `status` asks what became of the run. Set `finished` when
    nothing of interest follows.
    """

    def __init__(
        self,
        upstream: Upstream,
        agent: str,
        url: str,
        thread_id: str,
        headers: Mapping[str, str],
        status: Status,
    ) -> None:
        self.run_id: str | None = None
        self.finished = False
        self._upstream = upstream
        self._agent = agent
        self._runs = f"{url}/threads/{thread_id}/runs"
        self._headers = {
            **headers,
            "accept": "text/event-stream",
            "accept-encoding": "identity",  # a compressing proxy would hold events back
        }
        self._status = status
        self._seen = Seen()
        self._taken_up = False

    async def events(self, body: Mapping[str, Any]) -> AsyncGenerator[Sequence[Frame], None]:
        """Yield the events of a new run as they come, each once."""
        failed = 0
        stalled = False
        exchange = self._begin(body)
        while True:
            cause: NetworkError | None = None
            try:
                async with aclosing(self._read(exchange)) as batches:
                    async for frames in batches:
                        failed, stalled = 0, False
                        yield frames
                if await self._is_over():
                    return
            except NetworkError as error:
                cause = error
                if self.run_id is None:
                    raise broken(self._agent, error) from error
                if isinstance(error, RunStalled):
                    if stalled:
                        raise broken(self._agent, error) from error
                    stalled = True
            if failed == _ATTEMPTS:
                raise self._lost(cause)
            if failed:
                await asyncio.sleep(backoff(failed - 1))
            failed += 1
            exchange = self._again()

    async def _read(self, exchange: Exchange) -> AsyncGenerator[Sequence[Frame], None]:
        frames = NamedFrames()
        async with _Held(exchange, self._note) as reply:
            if not 200 <= reply.status < 300:
                raise await self._refusal(reply)
            if "text/event-stream" not in reply.headers.get("content-type", ""):
                raise strange(self._agent)
            try:
                async for block in reply:
                    if found := self._seen.new(frames.feed(block), again=self._taken_up):
                        yield found
            finally:
                reply.finished = self.finished

    def _begin(self, body: Mapping[str, Any]) -> Exchange:
        headers = {"content-type": "application/json", **self._headers}
        return self._upstream.post(f"{self._runs}/stream", dumps(body), headers)

    def _again(self) -> Exchange:
        """Return the exchange that goes on after the last event that is here."""
        self._taken_up = True
        headers = {**self._headers, "last-event-id": self._seen.resume_id}
        url = f"{self._runs}/{self.run_id}/stream"
        return Exchange(self._upstream, "GET", url, None, headers)

    def _note(self, reply: Reply) -> None:
        for header in ("content-location", "location"):
            if self.run_id is None and (found := _RUN.search(reply.headers.get(header, ""))):
                self.run_id = found[1]

    async def _is_over(self) -> bool:
        """Say whether a stream that ended in order is whole: proxies end streams, too."""
        if self.finished or self.run_id is None:
            return True
        try:
            return await self._status(self.run_id) not in _GOING_ON
        except NetworkError:
            raise
        except CopilotError as error:  # the run itself is gone
            raise self._lost(error) from error

    async def _refusal(self, reply: Reply) -> CopilotError:
        body = b""
        with suppress(CopilotError, TimeoutError):  # the status says enough without the text
            async with asyncio.timeout(_PATIENCE):
                body = await reply.text()
        error = refusal(self._agent, reply.status, _reason(body))
        if self.run_id is not None and not isinstance(error, NetworkError):
            return self._lost(error)
        return error

    def _lost(self, cause: CopilotError | None) -> IncompleteStream:
        return IncompleteStream(
            f"The connection to the agent {self._agent!r} broke off before the run ended.",
            hint=cause.hint if cause is not None else "Its server ended the stream too early.",
        )


class _Held:
    """An exchange whose answer is waited for, even by who is told to stop meanwhile.

    The server may have begun a run, and only its answer says which one is to be cancelled.
    """

    def __init__(self, exchange: Exchange, note: Callable[[Reply], None]) -> None:
        self._exchange = exchange
        self._note = note

    async def __aenter__(self) -> Reply:
        opening = asyncio.ensure_future(self._exchange.__aenter__())
        try:
            reply = await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(CopilotError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    self._note(await opening)
            await self._exchange.__aexit__(None, None, None)
            raise
        self._note(reply)
        return reply

    async def __aexit__(self, *_: object) -> None:
        await self._exchange.__aexit__(None, None, None)


def _reason(body: bytes) -> str:
    try:
        said = loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()
    fields = as_object(said)
    detail = fields.get("detail", fields.get("message"))
    return detail if isinstance(detail, str) else body.decode(errors="replace")
