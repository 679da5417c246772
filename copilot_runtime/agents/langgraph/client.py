"""A LangGraph server's assistants, threads and runs, through its SDK."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from copilot_runtime.agents.langgraph.errors import refusal, strange
from copilot_runtime.agents.langgraph.request import Assistant, ids_for
from copilot_runtime.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    NetworkError,
    NotFound,
    RunStalled,
)
from copilot_runtime.jsonvalue import JsonObject, as_object, as_objects, get_object

if TYPE_CHECKING:
    from langgraph_sdk.client import LangGraphClient

Headers = Mapping[str, str]

_ASSISTANTS = 100
_CANNOT_SAY = (400, 404, 422, 500, 501)
"""What a server answers that has no schema of a graph: some types have none."""
_PAGE = 50
_SILENCE = 60.0
"""Seconds the server may take for anything that is no stream."""


class LangGraphServer:
    """Asks the server at `url`; `agent` is how errors call it."""

    def __init__(self, url: str, agent: str, connect_timeout: float) -> None:
        if find_spec("langgraph_sdk") is None:
            raise MissingPackage("LangGraphAgent", "langgraph-sdk", "langgraph")
        self.url = url
        self._agent = agent
        self._connect_timeout = connect_timeout
        self._wants_uuids = False
        self._clients: dict[asyncio.AbstractEventLoop, LangGraphClient] = {}

    async def assistant(self, graph: str, headers: Headers) -> Assistant:
        """Find an assistant by its id, or the one of a graph. Raises `NotFound`."""
        client = self._client().assistants
        if _is_uuid(graph):
            found = [await self._ask(client.get(graph, headers=headers))]
        else:
            search = client.search(graph_id=graph, limit=_ASSISTANTS, headers=headers)
            found = await self._ask(search)
        if not isinstance(found, list):
            raise strange(self._agent)
        ids = [
            assistant["assistant_id"]
            # the server makes one for each graph; others are variants that somebody has set up
            for assistant in sorted(as_objects(found), key=_is_made_by_hand)
            if isinstance(assistant.get("assistant_id"), str)
        ]
        if not ids:
            raise NotFound(
                f"There is no agent behind {self._agent!r}.",
                hint=f"The LangGraph server has no graph or assistant {graph!r}; "
                "its langgraph.json names those it has.",
            )
        return await self._with_keys(ids[0], headers)

    async def thread(self, thread_id: str, headers: Headers) -> tuple[str, JsonObject | None]:
        """Return what the server calls a thread, and its state, if there is such a thread."""
        name, *others = ids_for(thread_id)
        if not others:
            return name, await self._state(name, headers)
        [made] = others
        if not self._wants_uuids:
            try:
                if (state := await self._state(name, headers)) is not None:
                    return name, state
            except ConfigurationFailed:
                self._wants_uuids = True
        return made, await self._state(made, headers)

    async def history(self, thread_id: str, headers: Headers) -> AsyncGenerator[JsonObject, None]:
        """Yield the states a thread has had, the last one first."""
        before: Any = None
        while True:
            page = await self._ask(
                self._client().threads.get_history(
                    thread_id, limit=_PAGE, before=before, headers=headers
                )
            )
            if not isinstance(page, list):
                raise strange(self._agent)
            for state in page:
                yield state
            if len(page) < _PAGE:
                return
            before = page[-1]["checkpoint"]

    async def create_thread(self, thread_id: str, metadata: JsonObject, headers: Headers) -> None:
        """Make a thread, unless it is there."""
        threads = self._client().threads
        await self._ask(
            threads.create(
                thread_id=thread_id, metadata=metadata, if_exists="do_nothing", headers=headers
            )
        )

    async def is_busy(self, thread_id: str, headers: Headers) -> bool:
        """Say whether a run goes on in a thread."""
        thread = await self._ask(self._client().threads.get(thread_id, headers=headers))
        return as_object(thread).get("status") == "busy"

    async def status(self, thread_id: str, run_id: str, headers: Headers) -> str:
        """Return what became of a run: `pending`, `running`, `success`, `error` …"""
        run = await self._ask(self._client().runs.get(thread_id, run_id, headers=headers))
        return str(as_object(run).get("status", ""))

    async def cancel(self, thread_id: str, run_id: str, headers: Headers) -> None:
        """Stop a run; return once it has stopped."""
        runs = self._client().runs
        await self._ask(runs.cancel(thread_id, run_id, wait=True, headers=headers))

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    async def _state(self, thread_id: str, headers: Headers) -> JsonObject | None:
        try:
            state = await self._ask(self._client().threads.get_state(thread_id, headers=headers))
        except NotFound:
            return None
        if not isinstance(state, dict):
            raise strange(self._agent)
        return state

    async def _with_keys(self, id: str, headers: Headers) -> Assistant:
        try:
            schemas = await self._ask(self._client().assistants.get_schemas(id, headers=headers))
        except CopilotError as error:
            if _status(error.__cause__) not in _CANNOT_SAY:
                raise
            return Assistant(id)
        return Assistant(id, _keys(schemas, "input_schema"), _keys(schemas, "output_schema"))

    async def _ask(self, answer: Awaitable[Any]) -> Any:
        import httpx
        from langgraph_sdk.errors import APIStatusError

        try:
            return await answer
        except APIStatusError as error:
            raise refusal(self._agent, error.status_code, error.message) from error
        except httpx.HTTPStatusError as error:
            raise refusal(self._agent, error.response.status_code, str(error)) from error
        except httpx.ReadTimeout as error:
            raise RunStalled(
                f"The agent {self._agent!r} is silent.",
                hint=f"{_origin(self.url)} gave no answer for {_SILENCE:g} s.",
            ) from error
        except httpx.TransportError as error:
            raise NetworkError(
                f"The agent {self._agent!r} did not answer.",
                hint=f"Asking {_origin(self.url)} failed: {type(error).__name__} {error}. "
                "Does the LangGraph server run there?",
            ) from error
        except (ValueError, KeyError, TypeError) as error:  # no JSON, or not what it should be
            raise strange(self._agent) from error

    def _client(self) -> "LangGraphClient":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            import httpx
            from langgraph_sdk.client import LangGraphClient

            # not by `get_client`: it looks for keys in the environment, asks a server that is down
            # for many seconds, and passes by the proxy of the environment
            timeout = httpx.Timeout(_SILENCE, connect=self._connect_timeout)
            client = httpx.AsyncClient(base_url=self.url, timeout=timeout)
            self._clients = {
                known: c for known, c in self._clients.items() if not known.is_closed()
            }
            self._clients[loop] = LangGraphClient(client)
        return self._clients[loop]


def _keys(schemas: Any, name: str) -> frozenset[str] | None:
    properties = get_object(schemas, name).get("properties")
    return frozenset(properties) if isinstance(properties, dict) else None


def _status(error: BaseException | None) -> int | None:
    import httpx
    from langgraph_sdk.errors import APIStatusError

    match error:
        case APIStatusError():
            return error.status_code
        case httpx.HTTPStatusError():
            return error.response.status_code
        case _:
            return None


def _is_made_by_hand(assistant: Any) -> bool:
    return get_object(assistant, "metadata").get("created_by") != "system"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
