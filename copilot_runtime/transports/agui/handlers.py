"""Handlers of the operations that do not start a run; they return a status and a body."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from copilot_runtime import __version__
from copilot_runtime.api.agent import DEFAULT_AGENT, Agent
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.user_memories import UserMemories
from copilot_runtime.base.errors import AgentNotFound, Misuse
from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadPage, ThreadQuery
from copilot_runtime.transports.agui import memories, threads
from copilot_runtime.transports.agui.encode import Dialect
from copilot_runtime.transports.agui.errors import no_agent
from copilot_runtime.transports.agui.routes import Name, Operation
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.thread_push.push import ThreadPush

if TYPE_CHECKING:
    from copilot_runtime.api.adapter import Transcriber

Answer = tuple[int, Any]
"""The status and the body of a response; the body may be `None`."""


class AgentNames:
    """Maps the names of agents for AG-UI clients to the agents of a runtime.

    With `chat`, the plain chat is the agent `default`, unless another agent has that name.
    """

    def __init__(self, conversations: Conversations, *, chat: bool) -> None:
        self._conversations = conversations
        self._chat = conversations.chat
        self._serves_chat = chat

    async def agents(self, caller: Caller) -> Mapping[str, Agent]:
        """Return the agents available to this caller, by name."""
        agents = await self._conversations.agents_for(caller)
        if not self._serves_chat or DEFAULT_AGENT in agents:
            return agents
        return {DEFAULT_AGENT: self._chat, **agents}

    async def resolve(self, requested_name: str, caller: Caller) -> str | None:
        """Return the runtime's name of an agent, `None` for the plain chat. Raises `Refusal`."""
        agents = await self.agents(caller)
        if requested_name not in agents:
            with suppress(AgentNotFound):
                await self._conversations.agent(requested_name, caller)  # raises a known reason
            raise no_agent(requested_name, agents)
        return None if agents[requested_name] is self._chat else requested_name


_REFUSALS: Mapping[Name, str] = {
    "annotate": "This server does not offer annotations; that is a part of CopilotKit's cloud.",
    "subscribe": "Thread subscriptions are disabled: the setting realtime_url is off.",
    "follow memories": "Changes of memories are not followed: list them again.",
}
"""Messages for operations that are not available."""

_INSPECTOR_AGENTS = 8
"""Number of agents above which `/info` leaves out thread endpoints for a page with a socket.

The inspector of CopilotKit would list the threads of each agent, ask for a token for each list, and
follow each in a socket of its own. `useThreads` takes the endpoints for granted, so only the lists
that a page shows remain."""

_RUNS_AT_ONCE = 50
"""Runs of a thread that are encoded before other tasks get a turn; takes some milliseconds."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answers:
    """Executes the operations that do not start a run."""

    conversations: Conversations
    names: AgentNames
    _: KW_ONLY
    dialect: Dialect
    transcriber: "Transcriber | None"
    info: Mapping[str, Any]
    push: ThreadPush | None = None
    memories: UserMemories | None = None

    async def of(self, operation: Operation, caller: Caller, *, socket_url: str = "") -> Answer:
        """Execute an operation. Raises `Refusal`, `BadRequest` or `CopilotError`.

        `socket_url` is the URL of this caller's thread subscriptions; empty if there are none.
        """
        match operation.name:
            case "info":
                agents = await self.names.agents(caller)
                transcribes = self.transcriber is not None
                return 200, build_info(
                    agents, self.info, transcription=transcribes, socket_url=socket_url
                )
            case "stop":
                await self.names.resolve(operation.agent, caller)
                return 200, await self._stop(operation, caller)
            case "list threads":
                query = threads.thread_query(caller, operation.query)
                page = threads.page(await self._list(query))
                if self.push is not None and socket_url:
                    page["joinCode"] = await self.push.tokens.make_code(query.owner)
                return 200, page
            case "subscribe" if self.push is not None and self.push.offers_sockets:
                return 200, {"joinToken": await self.push.tokens.make_token(caller.identity)}
            case "transcribe":
                from copilot_runtime.transports.agui.transcribe import transcribe  # loads aiohttp

                body = operation.body if isinstance(operation.body, tuple) else (operation.body,)
                return await transcribe(self.transcriber, *body)
            case "clear threads" | "inspect":
                return 204, None
            case name if name in memories.OPERATIONS:
                return await memories.answer(self.memories, operation, caller.user)
            case _:
                return await self._of_thread(operation, caller)

    async def _list(self, query: ThreadQuery) -> ThreadPage:
        try:
            return await self.conversations.list(query)
        except Misuse as error:  # only the store knows its cursors
            raise BadRequest(f"The query parameter cursor is wrong: {error.message}") from error

    async def _of_thread(self, operation: Operation, caller: Caller) -> Answer:
        conversations = self.conversations
        key = threads.thread_key(caller, operation.thread)
        match operation.name:
            case "read messages":
                return 200, {"messages": threads.messages(await conversations.runs(key))}
            case "read events":
                runs = await conversations.runs(key)
                return 200, {"events": await self._list_events(key, runs)}
            case "read state":
                return 200, {"state": threads.state(await conversations.runs(key))}
            case "change thread":
                name, archived = _changes(operation.body)
                changed = await conversations.update(key, name=name, archived=archived)
                return 200, threads.thread(changed)
            case "archive thread":
                await conversations.update(key, archived=True)
                return 200, {"threadId": operation.thread, "archived": True}
            case "delete thread":
                await conversations.delete(key)
                return 200, {"threadId": operation.thread, "deleted": True}
            case _:
                return 422, {"error": _REFUSALS.get(operation.name, "This is not offered.")}

    async def _list_events(self, key: ThreadKey, runs: Sequence[StoredRun]) -> orjson.Fragment:
        """Return the events of a thread as a JSON list; pause for other tasks in between."""
        pieces: list[bytes] = []
        for number, piece in enumerate(threads.events(key, runs, self.dialect), 1):
            if piece:
                pieces.append(piece)
            if number % _RUNS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return orjson.Fragment(b"[%b]" % b",".join(pieces))

    async def _stop(self, operation: Operation, caller: Caller) -> dict[str, Any]:
        body = {} if operation.body is None else operation.body
        if not isinstance(body, dict) or body.keys() - {"runId"}:
            raise Misuse("The body of stop is empty, or {runId}.")
        run_id = body.get("runId")
        if run_id is not None and not isinstance(run_id, str):
            raise Misuse("runId must be a string.")
        key = threads.thread_key(caller, operation.thread)
        if not await self.conversations.stop_thread(key, run_id):
            message = f"No active run for thread '{operation.thread}'."
            return {"stopped": False, "message": message}
        interrupt = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}
        return {"stopped": True, "interrupt": interrupt}


def _changes(body: Any) -> tuple[str | None, bool | None]:
    """Decode the changes to a thread: name and archived flag. Raises `Misuse`."""
    fields: Mapping[str, Any] = as_object(body)
    name, archived = fields.get("name"), fields.get("archived")
    if name is not None and not isinstance(name, str):
        raise Misuse("name must be a string.")
    if archived is not None and not isinstance(archived, bool):
        raise Misuse("archived must be true or false.")
    if name is None and archived is None:
        raise Misuse("Give a name, or whether the thread is archived.")
    return name, archived


def build_info(
    agents: Mapping[str, Agent],
    info: Mapping[str, Any],
    *,
    transcription: bool,
    socket_url: str = "",
) -> dict[str, Any]:
    """Return the body of `/info`, which is also that of `{"method": "info"}`.

    `info` has the fields of extensions. MCP apps are not mentioned, as in Node: frontends always
    render them.

    No licence status is sent: this runtime needs no licence, and claims none. The name
    `intelligence` is the client's: it opens its socket for threads at that URL, in any mode.
    """
    threads = {
        "list": True,
        "inspect": True,
        "mutations": True,
        "realtimeMetadata": False,  # whether chats are notified of runs
    }
    offers_lists = not socket_url or len(agents) <= _INSPECTOR_AGENTS
    endpoints = {"threadEndpoints": threads} if offers_lists else {}
    return {
        "version": __version__,
        "agents": {name: _describe_agent(name, agent) for name, agent in agents.items()},
        "audioFileTranscriptionEnabled": transcription,
        "mode": "sse",
        **({"intelligence": {"wsUrl": socket_url}} if socket_url else {}),
        **endpoints,
        "singleRoute": {"resourceOperations": True, **endpoints},
        "suggestions": True,
        **info,
        "telemetryDisabled": True,
    }


def _describe_agent(name: str, agent: Agent) -> dict[str, Any]:
    own = agent.capabilities
    if not isinstance(cast("object", own), Mapping):  # an object of the application may have any
        logger.warning("The `capabilities` of the agent %r are not a mapping: not sent.", name)
        own = {}
    return {
        "name": name,
        "description": agent.description or "",
        "className": type(agent).__name__,
        "capabilities": {"transport": {"streaming": True}, **own},
    }
