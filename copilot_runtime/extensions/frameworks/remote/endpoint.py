"""CopilotKit remote endpoints: their actions and agents, as those of this runtime.

`discovery.py` fetches the catalog, `request.py` builds the request to an agent, and `translate.py`
decodes the response.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from copilot_runtime.agents.forwarding import describe_actions, map_network_error
from copilot_runtime.agents.registry import AgentDirectory
from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.agent import Agent, Agents
from copilot_runtime.api.argument_checks import check_items
from copilot_runtime.api.events import Events
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import AgentInput, RunInput
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    IncompleteStream,
    NetworkError,
    NotFound,
)
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object, parse_object
from copilot_runtime.extensions.frameworks.remote.discovery import (
    Catalog,
    CatalogAction,
    CatalogAgent,
    Discovery,
)
from copilot_runtime.extensions.frameworks.remote.link import (
    RUN_ACTION,
    RUN_AGENT,
    STATE,
    BeforeRequest,
    Link,
    is_success,
    read_reason,
)
from copilot_runtime.extensions.frameworks.remote.translate import RemoteEventDecoder
from copilot_runtime.http.sse import PAYLOADS_AT_ONCE

if TYPE_CHECKING:
    import httpx


_WHERE = ": its remote endpoint is down"


class RemoteEndpoint(ActionSource):
    """The endpoint at `url`, as `add_fastapi_endpoint` of the package `copilotkit` serves it.

    Requests carry the headers that may be forwarded; `headers` replace them, and the headers that
    `before_request` returns for a `Caller` replace both. The catalog is cached for `ttl`, by
    headers, properties and page. Fetching it takes at most `discovery_timeout`; after a failure,
    the last catalog is used, and the next attempt is made after `retry_pause`. `idle_timeout` is
    the longest silence within a response. Times are in seconds. `http_client` is an
    `httpx.AsyncClient` of the application for all but the streams of agents; it is not closed here.
    Raises `ConfigurationFailed` for an invalid `url`.
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
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        self.url = url
        self._link = Link(
            url,
            headers=headers,
            before_request=before_request,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            http_client=http_client,
        )
        self._discovery = Discovery(
            self._link, ttl=ttl, pause=retry_pause, patience=discovery_timeout
        )

    async def fetch_catalog(self, caller: Caller) -> Catalog:
        """Return the catalog for this caller; an error is its `failure`, and not raised."""
        return await self._discovery.fetch_catalog(caller)

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for this run; empty if the endpoint has never answered."""
        catalog = await self.fetch_catalog(run.caller)
        return [self._build_action(entry) for entry in catalog.actions]

    def agent(self, entry: CatalogAgent) -> "RemoteAgent":
        """Return the agent of a catalog entry."""
        return RemoteAgent(entry, self._link)

    async def aclose(self) -> None:
        """Cancel the requests under way and close the connections."""
        await self._discovery.aclose()
        await self._link.aclose()

    def _build_action(self, entry: CatalogAction) -> Action:
        """Return the action of a catalog entry."""
        run = partial(self._run_action, entry.name)
        return Action(
            name=entry.name, description=entry.description, parameters=entry.parameters, run=run
        )

    async def _run_action(
        self, name: str, values: Mapping[str, Any], context: ActionContext
    ) -> Any:
        """Run an action. A call is never repeated: it may have acted before it failed."""
        caller = Caller(user=context.user, headers=context.headers, properties=context.properties)
        headers = await self._link.headers(caller, context.span)
        body = {"name": name, "arguments": {**values}, "properties": {**context.properties}}
        status, answer = await self._link.json(RUN_ACTION, body, headers, name)
        if not is_success(status):
            raise NetworkError(
                answer["error"] or f"The remote action {name!r} failed.",
                hint=f"{self._link.safe_url} answered {status}.",
            )
        if not isinstance(answer, dict):
            raise NetworkError(
                f"The remote action {name!r} returned something that cannot be read.",
                hint=f"{self._link.safe_url} did not answer with a JSON object.",
            )
        return answer.get("result")


class RemoteAgent(Agent):
    """One agent of a remote endpoint."""

    provider = "copilotkit"

    def __init__(self, entry: CatalogAgent, link: Link) -> None:
        self.name = entry.name
        self.description = entry.description
        self.url = link.safe_url
        self._link = link

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's events; on cancellation or early close, close the connection.

        The request is never repeated: the agent may have acted. Raises `AgentFailed`, `NotFound`,
        `NetworkError`, `RunStalled` after `idle_timeout`, and `IncompleteStream`.
        """
        headers = await self._link.headers(run.caller, run.span)
        decoder = RemoteEventDecoder(run.agent or self.name, run)
        before: str | None = None
        try:
            body = build_request_body(run, self.name)
            async with self._link.send(RUN_AGENT, body, headers, self.name) as reply:
                before = "it had ended"
                if not is_success(reply.status):
                    raise self._refusal(reply.status, await read_reason(reply, headers))
                async for block in reply:
                    for number, event in enumerate(decoder.feed(block), 1):
                        yield event
                        if number % PAYLOADS_AT_ONCE == 0:
                            await asyncio.sleep(0)  # let other tasks run, and allow cancellation
                    if decoder.failure is not None:
                        break  # the connection is closed, so that the agent stops
                else:
                    for event in decoder.finish():
                        yield event
        except NetworkError as error:
            raise map_network_error(self.name, error, before=before, where=_WHERE) from error
        if decoder.failure is not None:
            raise decoder.failure

    async def load_state(
        self, thread_id: str, caller: Caller
    ) -> tuple[dict[str, Any], list[Any]] | None:
        """Return the state and the messages of a thread, or None if there is no such thread.

        Raises `AgentFailed`, `NotFound`, `NetworkError`, `RunStalled` and `IncompleteStream`.
        """
        headers = await self._link.headers(caller)
        properties = {**caller.properties}
        request = {"properties": properties, "threadId": thread_id, "name": self.name}
        try:
            status, body = await self._link.json(STATE, request, headers, self.name)
        except NetworkError as error:
            raise map_network_error(self.name, error, where=_WHERE) from error
        if not is_success(status):
            raise self._refusal(status, body["error"])
        if not isinstance(body, dict):
            raise IncompleteStream(f"The agent {self.name!r} gave a state that cannot be read.")
        if body.get("threadExists") is not True:
            return None
        return as_object(body.get("state")), as_list(body.get("messages"))

    def _refusal(self, status: int, reason: str) -> CopilotError:
        hint = f"{self._link.safe_url} answered {status} for the agent {self.name!r}."
        if status in (404, 405):
            return NotFound(f"The agent {self.name!r} is gone from its remote endpoint.", hint=hint)
        because = f": {reason}" if reason else "."
        return AgentFailed(f"The agent {self.name!r} failed{because}", hint=hint)


def build_request_body(run: RunInput, name: str) -> JsonObject:
    """Return the body of a request to the agent `name`, in the JSON of CopilotKit v1."""
    agent = run.agents.get(run.agent or name, AgentInput())
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "name": name,
        "threadId": run.private_thread_id,
        **({} if run.node is None else {"nodeName": run.node}),
        # our messages have no time; some servers require one
        "messages": [
            {"id": message.id, "createdAt": now, **fields}
            for message in run.messages
            if (fields := _encode_message(message)) is not None
        ],
        "state": as_object(agent.state),
        "config": dict(agent.config),
        "properties": {**run.properties},
        "actions": describe_actions(a for a in run.actions if a.available != "disabled"),
        "metaEvents": _encode_resumes(run),
    }


def _encode_message(message: Message) -> JsonObject | None:
    """Return the JSON of a message, or `None` for reasoning and activities, which v1 lacks."""
    match message:
        case TextMessage():
            text = {"type": "TextMessage", "content": message.content, "role": message.role}
            return {**text, **_encode_parent(message.parent_id)}
        case ActionExecutionMessage():
            return {
                "type": "ActionExecutionMessage",
                "name": message.name,
                "arguments": parse_object(message.arguments),
                **_encode_parent(message.parent_id),
            }
        case ResultMessage():
            return {
                "type": "ResultMessage",
                "actionExecutionId": message.call_id,
                "actionName": message.name,
                "result": message.result,
            }
        case ImageMessage():
            image = {"format": message.format, "bytes": message.bytes, "role": message.role}
            return {"type": "ImageMessage", **image, **_encode_parent(message.parent_id)}
        case AgentStateMessage():
            return {
                "type": "AgentStateMessage",
                "threadId": message.thread_id,
                "agentName": message.agent,
                "nodeName": message.node,
                "runId": message.run_id,
                "active": message.active,
                "role": "assistant",
                "state": message.state,
                "running": message.running,
            }
        case _:
            return None


def _encode_parent(id: str | None) -> JsonObject:
    return {} if id is None else {"parentMessageId": id}


def _encode_resumes(run: RunInput) -> list[JsonObject]:
    return [
        {
            "name": "LangGraphInterruptEvent",
            "value": resume.value,
            # the text of a v1 client is passed on as it is
            "response": resume.response if run.is_v1 or resume.payload is None else resume.payload,
        }
        for resume in run.resume
    ]


logger = logging.getLogger(__name__)

UNSUPPORTED_KINDS = frozenset({"langgraph_agui"})
"""Kinds of agents that endpoints list but cannot run."""


def coerce_endpoints(
    endpoints: Sequence[str | RemoteEndpoint], http_client: "httpx.AsyncClient | None" = None
) -> list[RemoteEndpoint]:
    """Return endpoints for URLs and endpoints; of several with one URL, the first.

    `http_client` is for those made of URLs.
    """
    check_items("remote_endpoints", endpoints, (str, RemoteEndpoint), "RemoteEndpoint")
    items = (
        RemoteEndpoint(one, http_client=http_client) if isinstance(one, str) else one
        for one in endpoints
    )
    found: dict[str, RemoteEndpoint] = {}
    for endpoint in items:
        found.setdefault(endpoint.url.rstrip("/"), endpoint)
    return [*found.values()]


class AgentResolver:
    """Returns the agents of the application and of the endpoints; the first of a name wins."""

    def __init__(self, own: Agents, endpoints: Sequence[RemoteEndpoint]) -> None:
        self._own = own
        self._endpoints = endpoints
        self._duplicates: set[str] = set()

    async def __call__(self, caller: Caller) -> Mapping[str, Agent]:
        own = await call(self._own, caller) if callable(self._own) else self._own
        if not isinstance(own, Mapping):
            return own  # the runtime reports the error
        catalogs = await asyncio.gather(
            *(endpoint.fetch_catalog(caller) for endpoint in self._endpoints)
        )
        found = AgentDirectory(own)
        for endpoint, catalog in zip(self._endpoints, catalogs, strict=True):
            for entry in catalog.agents:
                if entry.kind in UNSUPPORTED_KINDS:
                    found.unsupported.setdefault(entry.name, _unsupported_error(entry.name))
                elif entry.name not in found:
                    found[entry.name] = endpoint.agent(entry)
                elif entry.name not in self._duplicates:
                    self._duplicates.add(entry.name)
                    logger.warning("There are several agents %r; one counts.", entry.name)
        found.failures = [catalog.failure for catalog in catalogs if catalog.failure is not None]
        return found


def _unsupported_error(name: str) -> ConfigurationFailed:
    return ConfigurationFailed(
        f"The agent {name!r} cannot be run through its remote endpoint. "
        "It has to be registered by the address where it speaks AG-UI.",
        hint="Endpoints of the package copilotkit only list agents of type langgraph_agui. Serve "
        "it with add_langgraph_fastapi_endpoint of ag_ui_langgraph, and register "
        f"agents={{{name!r}: AguiAgent(url)}}.",
    )
