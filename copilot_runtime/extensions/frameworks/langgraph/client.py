"""Reads and changes assistants, threads and runs of a LangGraph server through its SDK."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import UUID

from copilot_runtime.agents.forwarding import derive_thread_ids
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    NetworkError,
    NotFound,
    RunStalled,
)
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, get_object
from copilot_runtime.extensions.frameworks.langgraph.errors import (
    invalid_response_error,
    map_status_error,
)
from copilot_runtime.extensions.frameworks.langgraph.request import Assistant
from copilot_runtime.http.errors import get_origin

if TYPE_CHECKING:
    import httpx
    from langgraph_sdk.client import LangGraphClient
Headers = Mapping[str, str]

_MAX_ASSISTANTS = 100
_NO_SCHEMA_STATUSES = (400, 404, 422, 500, 501)
"""Statuses of a server that cannot build a graph's schema: some types have none."""
_PAGE_SIZE = 50
_READ_TIMEOUT = 60.0
"""Timeout of a response that is not a stream, in seconds."""


class LangGraphServer:
    """The server at `url`; `agent` is its name in errors.

    With `http_client`, requests go out by that client of the application, which stays open.
    """

    def __init__(
        self,
        url: str,
        agent: str,
        connect_timeout: float,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        if find_spec("langgraph_sdk") is None:
            raise MissingPackage("LangGraphAgent", "langgraph-sdk", "langgraph")
        self.url = url
        self._origin = get_origin(url)
        self._agent = agent
        self._connect_timeout = connect_timeout
        self._http_client = http_client
        self._needs_uuids = False
        self._clients: dict[asyncio.AbstractEventLoop, LangGraphClient] = {}

    async def assistant(self, graph: str, headers: Headers) -> Assistant:
        """Return an assistant by its id, or that of a graph. Raises `NotFound`."""
        client = self._client().assistants
        if _is_uuid(graph):
            assistants = [await self._call(client.get(graph, headers=headers))]
        else:
            search = client.search(graph_id=graph, limit=_MAX_ASSISTANTS, headers=headers)
            assistants = await self._call(search)
        if not isinstance(assistants, list):
            raise invalid_response_error(self._agent)
        ids = [
            assistant["assistant_id"]
            # the server creates one for each graph; others are variants created by an operator
            for assistant in sorted(as_objects(assistants), key=_is_custom)
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
        """Return the server's id of a thread, and its state, None if there is no such thread."""
        first, *others = derive_thread_ids(thread_id)
        if not others:
            return first, await self._state(first, headers)
        [derived] = others
        if not self._needs_uuids:
            try:
                if (state := await self._state(first, headers)) is not None:
                    return first, state
            except ConfigurationFailed:
                self._needs_uuids = True
        return derived, await self._state(derived, headers)

    async def history(self, thread_id: str, headers: Headers) -> AsyncGenerator[JsonObject, None]:
        """Yield the states of a thread, the last one first."""
        before: Any = None
        while True:
            page = await self._call(
                self._client().threads.get_history(
                    thread_id, limit=_PAGE_SIZE, before=before, headers=headers
                )
            )
            if not isinstance(page, list):
                raise invalid_response_error(self._agent)
            for state in page:
                yield state
            if len(page) < _PAGE_SIZE:
                return
            before = page[-1]["checkpoint"]

    async def create_thread(self, thread_id: str, metadata: JsonObject, headers: Headers) -> None:
        """Create a thread, unless it exists."""
        threads = self._client().threads
        await self._call(
            threads.create(
                thread_id=thread_id, metadata=metadata, if_exists="do_nothing", headers=headers
            )
        )

    async def is_busy(self, thread_id: str, headers: Headers) -> bool:
        """Return whether a run is under way in a thread."""
        thread = await self._call(self._client().threads.get(thread_id, headers=headers))
        return as_object(thread).get("status") == "busy"

    async def status(self, thread_id: str, run_id: str, headers: Headers) -> str:
        """Return the status of a run: `pending`, `running`, `success`, `error` …"""
        run = await self._call(self._client().runs.get(thread_id, run_id, headers=headers))
        return str(as_object(run).get("status", ""))

    async def cancel(self, thread_id: str, run_id: str, headers: Headers) -> None:
        """Cancel a run; return once it has stopped."""
        runs = self._client().runs
        await self._call(runs.cancel(thread_id, run_id, wait=True, headers=headers))

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    async def _state(self, thread_id: str, headers: Headers) -> JsonObject | None:
        try:
            state = await self._call(self._client().threads.get_state(thread_id, headers=headers))
        except NotFound:
            return None
        if not isinstance(state, dict):
            raise invalid_response_error(self._agent)
        return state

    async def _with_keys(self, id: str, headers: Headers) -> Assistant:
        try:
            schemas = await self._call(self._client().assistants.get_schemas(id, headers=headers))
        except CopilotError as error:
            if getattr(error.__cause__, "status_code", None) not in _NO_SCHEMA_STATUSES:
                raise
            return Assistant(id)
        return Assistant(
            id, _read_keys(schemas, "input_schema"), _read_keys(schemas, "output_schema")
        )

    async def _call(self, answer: Awaitable[Any]) -> Any:
        import httpx

        try:
            return await answer
        except httpx.HTTPStatusError as error:
            raise map_status_error(self._agent, error.response.status_code, str(error)) from error
        except httpx.ReadTimeout as error:
            raise RunStalled(
                f"The agent {self._agent!r} is silent.",
                hint=f"{self._origin} gave no answer for {_READ_TIMEOUT:g} s.",
            ) from error
        except httpx.TransportError as error:
            raise NetworkError(
                f"The agent {self._agent!r} did not answer.",
                hint=f"Asking {self._origin} failed: {type(error).__name__} {error}. "
                "Does the LangGraph server run there?",
            ) from error
        except (ValueError, KeyError, TypeError) as error:  # not JSON, or of another shape
            raise invalid_response_error(self._agent) from error

    def _client(self) -> "LangGraphClient":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            from langgraph_sdk.client import LangGraphClient

            # not by `get_client`: it reads keys from the environment, retries a server that is down
            # for many seconds, and ignores the proxy of the environment
            client = _open_client(self.url, self._connect_timeout, self._http_client)
            self._clients = {
                other: client for other, client in self._clients.items() if not other.is_closed()
            }
            self._clients[loop] = LangGraphClient(client)
        return self._clients[loop]


def _open_client(
    url: str, connect_timeout: float, http_client: "httpx.AsyncClient | None"
) -> "httpx.AsyncClient":
    import httpx

    from copilot_runtime.http.httpx_client import HostTransport

    class Client(httpx.AsyncClient):
        async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
            """Send a request, once more if the server had just closed the pooled connection.

            All requests are idempotent: they read, or create or cancel something by its id.
            """
            try:
                return await super().send(request, **options)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                return await super().send(request, **options)

    timeout = httpx.Timeout(_READ_TIMEOUT, connect=connect_timeout)
    transport = None if http_client is None else HostTransport(http_client)
    return Client(base_url=url, timeout=timeout, transport=transport)


def _read_keys(schemas: Any, name: str) -> frozenset[str] | None:
    properties = get_object(schemas, name).get("properties")
    return frozenset(properties) if isinstance(properties, dict) else None


def _is_custom(assistant: Any) -> bool:
    return get_object(assistant, "metadata").get("created_by") != "system"


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
