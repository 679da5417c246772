"""Actions and agents behind a CopilotKit remote endpoint: the Python package `copilotkit`.

What it offers is found out by asking it; `request.py` is what an agent is asked, and
`translate.py` reads what it says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime.agents.remote.action import remote_action
from copilot_runtime.agents.remote.catalog import Offer, OfferedAgent
from copilot_runtime.agents.remote.discovery import Discovery
from copilot_runtime.agents.remote.link import (
    RUN_AGENT,
    STATE,
    BeforeRequest,
    Link,
    is_good,
    reason_of,
)
from copilot_runtime.agents.remote.request import request_body
from copilot_runtime.agents.remote.translate import RemoteEvents
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.errors import (
    CopilotError,
    IncompleteStream,
    NetworkError,
    NotFound,
    RunStalled,
)
from copilot_runtime.interfaces import Action, Caller, Events, RunInput


class RemoteEndpoint:
    """The endpoint at `url`, as `add_fastapi_endpoint` of the package `copilotkit` serves it.

    It gets the headers that may be forwarded; those in `headers` win over them, and those that
    `before_request` returns for a `Caller` win over both. What it offers is remembered for `ttl`
    seconds, for whoever sends the same headers and properties from the same page. One that is down
    keeps nobody waiting for longer than `discovery_timeout`, is asked again after `retry_pause`,
    and still counts with what was known of it. Times are in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        before_request: BeforeRequest | None = None,
        ttl: float = 30.0,
        retry_pause: float = 5.0,
        discovery_timeout: float = 5.0,
        connect_timeout: float = 10.0,
        idle_timeout: float = 300.0,
    ) -> None:
        self.url = url
        self._link = Link(
            url,
            headers=headers,
            before_request=before_request,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
        )
        self._discovery = Discovery(
            self._link, ttl=ttl, pause=retry_pause, patience=discovery_timeout
        )

    async def offer(self, caller: Caller) -> Offer:
        """Return what it has for this caller, and why it cannot be asked if it cannot."""
        return await self._discovery.offer(caller)

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return its actions for this run: none of an endpoint that was never there."""
        offer = await self.offer(run.caller)
        return [remote_action(offered, self._link) for offered in offer.actions]

    def agent(self, offered: OfferedAgent, properties: Mapping[str, Any]) -> "RemoteAgent":
        """Return an agent that it offers; `properties` are the operator's."""
        return RemoteAgent(offered, self._link, properties)

    async def aclose(self) -> None:
        """Ask no more, and close the connections."""
        await self._discovery.aclose()
        await self._link.aclose()


class RemoteAgent:
    """One agent of a remote endpoint."""

    def __init__(self, offered: OfferedAgent, link: Link, properties: Mapping[str, Any]) -> None:
        self.name = offered.name
        self.description = offered.description
        self._link = link
        self._properties = properties

    async def run(self, run: RunInput) -> Events:
        """Ask the agent; yield what it says. It is asked once: it may have done something."""
        headers = await self._link.headers(run.caller)
        said = RemoteEvents(run.agent or self.name, run)
        answered = False
        try:
            body = request_body(run, self.name)
            async with self._link.ask(RUN_AGENT, body, headers, self.name) as reply:
                answered = True
                if not is_good(reply.status):
                    raise self._refused(reply.status, await reason_of(reply, headers))
                async for block in reply:
                    for event in said.feed(block):
                        yield event
                    if said.failure is not None:
                        break  # the connection is closed, so that the agent stops
                else:
                    for event in said.finish():
                        yield event
        except NetworkError as error:
            raise self._broken(error, answered) from error
        if said.failure is not None:
            raise said.failure

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, or None for one it does not know."""
        headers = await self._link.headers(caller)
        properties = {**self._properties, **caller.properties}
        body = {"properties": properties, "threadId": thread_id, "name": self.name}
        try:
            status, found = await self._link.json(STATE, body, headers, self.name)
        except NetworkError as error:
            raise self._broken(error, answered=False) from error
        if not is_good(status):
            raise self._refused(status, found["error"])
        if not isinstance(found, dict):
            raise IncompleteStream(f"The agent {self.name!r} gave a state that cannot be read.")
        if found.get("threadExists") is not True:
            return None
        state, messages = found.get("state"), found.get("messages")
        return (
            state if isinstance(state, dict) else {},
            messages if isinstance(messages, list) else [],
        )

    def _refused(self, status: int, reason: str) -> CopilotError:
        hint = f"{self._link.shown} answered {status} for the agent {self.name!r}."
        if status in (404, 405):
            return NotFound(f"The agent {self.name!r} is gone from its remote endpoint.", hint=hint)
        because = f": {reason}" if reason else "."
        return AgentFailed(f"The agent {self.name!r} failed{because}", hint=hint)

    def _broken(self, error: NetworkError, answered: bool) -> CopilotError:
        """Say what broke; where we asked is for the log."""
        reason = error.message.partition("API error: ")[2] or error.message
        if isinstance(error, RunStalled):
            return RunStalled(f"The agent {self.name!r} is silent. {reason}", hint=error.hint)
        if answered:
            return IncompleteStream(
                f"The connection to the agent {self.name!r} broke off before it had ended.",
                hint=error.hint,
            )
        return NetworkError(
            f"The agent {self.name!r} did not answer: its remote endpoint is down. {reason}",
            status_code=error.status_code,
            hint=error.hint,
        )
