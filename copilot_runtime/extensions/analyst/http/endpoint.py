"""The routes `copilot/…` and `analyst/…` below a runtime's URL: the analyst without CopilotKit.

Answers are streamed as server-sent events: `thought`, `response` or `error`, and `done`.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from urllib.parse import parse_qsl, unquote

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.http.access import PRIVATE, AnalystAccess, Viewer, read_json
from copilot_runtime.extensions.analyst.http.ask import Answers, Frame, read_ask
from copilot_runtime.extensions.analyst.http.resources import Resources
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Services, Transport, check_method, find_data_scope

Frames = AsyncGenerator[tuple[str, Frame], None]
"""Events of an answer, each with its identifier."""

STREAMS = ("copilot/stream/oai", "copilot/stream")
CHAT = "copilot/chat"

PING = 15
"""Seconds of silence before a comment is sent."""

_SEPARATOR = "\n"


class AnalystEndpoint(Transport):
    """Answers questions, and serves the resources of their answers."""

    paths = (*STREAMS, CHAT, "analyst", "analyst/{rest:path}")
    root_paths = (*STREAMS, CHAT)

    def __init__(self, services: Services) -> None:
        self._access = services.parts.get(AnalystAccess)
        self._answers = Answers(services.runs, services.telemetry)

    def find_scope(self, request: Request) -> str:
        """Return the permission for data; the start of a run is checked by the runtime."""
        return "runs:start" if request.path in (*STREAMS, CHAT) else find_data_scope(request)

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        """Return the routes for `/docs`."""
        from copilot_runtime.extensions.analyst.http.rest import rest_routes  # imports FastAPI

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        if request.path in (*STREAMS, CHAT):
            check_method(request, "POST")
            await self._answer(request, self._access)
            return
        values = dict(parse_qsl(request.query_string, keep_blank_values=True))
        viewer = await self._access.identify(request.caller, values.get("agent", ""))
        parts = [unquote(part) for part in request.path.split("/")[1:]]
        await Resources(request, viewer, values).respond(parts)

    async def _answer(self, request: Request, access: AnalystAccess) -> None:
        if last_id := request.headers.get("last-event-id", ""):
            log_id, log, number = await self._answers.find(last_id, request.caller.user)
            await self._stream(request, self._answers.follow(log_id, log, number))
            return
        ask = read_ask(await read_json(request))
        viewer = await access.identify(request.caller, agent_name=ask.agent_name)
        await check_agent_name(viewer)
        run = await self._answers.start(ask, viewer)
        if request.path == CHAT:
            try:
                frame, encoder = await self._answers.read(run.log_id)
            finally:
                run.stop()
            body = {**(frame.data or {}), "thoughts": encoder.thoughts}
            await request.respond_json(200 if frame.name == "response" else 502, body, PRIVATE)
            return
        try:
            await self._stream(request, self._answers.follow(run.log_id, run.follow()))
        finally:
            if not ask.is_resumable:
                run.stop(keep_log=True)  # a run that has ended stays as it is

    async def _stream(self, request: Request, frames: Frames) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.response_headers
        }
        response = EventSourceResponse(
            self._build_events(frames), headers=headers, ping=PING, sep=_SEPARATOR
        )
        request.is_answered = True
        await response(request.scope, request.receive, request.send)

    async def _build_events(self, frames: Frames) -> AsyncGenerator[ServerSentEvent, None]:
        async with aclosing(frames):
            async for id, frame in frames:
                data = "" if frame.data is None else dumps(frame.data).decode()
                yield ServerSentEvent(data, event=frame.name, id=id, sep=_SEPARATOR)


async def check_agent_name(viewer: Viewer) -> None:
    """Raise `BadRequest` for an `agent_name` of which the caller may see no rows."""
    name = viewer.scope.agent_name
    if name is None:
        return
    names = await viewer.analyst.list_agent_names(viewer.scope)
    if names is not None and name not in names:
        listed = ", ".join(names) or "none"
        raise BadRequest(f"Unknown agent_name {name[:100]!r}. Known: {listed[:2000]}.")
