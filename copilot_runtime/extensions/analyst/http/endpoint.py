"""The routes `copilot/…` and `analyst/…` below a runtime's URL: the analyst without CopilotKit.

Answers are streamed as server-sent events: `thought`, `response` or `error`, and `done`.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.engine.datasets import Dataset
from copilot_runtime.extensions.analyst.http.access import PRIVATE, AnalystAccess, Viewer
from copilot_runtime.extensions.analyst.http.ask import Answers, Frame, read_ask
from copilot_runtime.extensions.analyst.results import to_plain
from copilot_runtime.extensions.analyst.view import describe_chart
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
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
        parts = [unquote(part) for part in request.path.split("/")[1:]]
        names = [values.get("agent", "")]
        if names == [""] and parts[:1] in (["charts"], ["downloads"]):  # of whichever analyst
            names = [*await self._access.find_agents(request.caller)] or names
        for name in names:
            viewer = await self._access.identify(request.caller, name)
            try:
                await Resources(request, viewer, values).respond(parts)
                return
            except NotFound:
                if name == names[-1]:
                    raise

    async def _answer(self, request: Request, access: AnalystAccess) -> None:
        if last_id := request.headers.get("last-event-id", ""):
            log_id, log, number = await self._answers.find(last_id, request.caller.user)
            await self._stream(request, self._answers.follow(log_id, log, number))
            return
        ask = read_ask(await request.json_object())
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


_MOST_TEXT = 2_000
_PLAIN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_OTHER_PROBLEM = "Some data cannot be read at the moment; the log of the server says which."


class Resources:
    """A request for a resource of an analyst."""

    def __init__(self, request: Request, viewer: Viewer, values: Mapping[str, str]) -> None:
        self._request = request
        self._viewer = viewer
        self._analyst = viewer.analyst
        self._scope = viewer.scope
        self._values = values

    async def respond(self, parts: Sequence[str]) -> None:
        """Respond to the request for a path."""
        request = self._request
        match [*parts]:
            case []:
                check_method(request, "GET", "HEAD")
                await self._respond(self._describe())
            case ["datasets"]:
                check_method(request, "GET", "HEAD")
                await self._list_datasets()
            case ["datasets", name]:
                check_method(request, "GET", "HEAD", "DELETE")
                await self._handle_dataset(name)
            case ["downloads", id]:
                check_method(request, "GET", "HEAD")
                await self._download(id)
            case ["charts", name]:
                check_method(request, "GET", "HEAD")
                await self._draw(name)
            case ["memory"]:
                check_method(request, "GET", "HEAD", "DELETE")
                await self._handle_memories()
            case ["memory", id]:
                check_method(request, "PATCH", "DELETE")
                await self._handle_memory(id)
            case _:
                raise NotFound(f"There is nothing at {request.path[:100]!r}.")

    def _describe(self) -> JsonObject:
        settings = self._analyst.settings
        return {
            "name": self._viewer.name,
            "memory_enabled": settings.memory_enabled,
            "allow_save": settings.allow_save,
            "tools": [*self._analyst.active_tools],
            "problems": [*self._analyst.find_failing_checks()],
        }

    async def _list_datasets(self) -> None:
        analyst = self._analyst
        analyst.start()
        counts = await analyst.count_rows(self._scope) if analyst.is_open else {}
        await self._respond(
            {
                "datasets": [
                    describe_dataset(one, counts.get(one.name))
                    for one in analyst.engine.list_datasets(self._scope)
                ],
                "is_loading": analyst.is_loading,
                "problems": self._describe_problems(),
                "progress": [
                    {"name": one.source, "rows": one.rows, "total": None}
                    for one in analyst.progress.values()
                ],
            }
        )

    def _describe_problems(self) -> list[JsonObject]:
        """Describe unavailable data: without names for users who may not query all data."""
        found = self._analyst.upkeep.list_problems()
        if self._scope.is_operator or self._analyst.rules.is_open:
            return [{"name": one.name, "problem": one.sentence} for one in found]
        return [{"name": "", "problem": _OTHER_PROBLEM}][: len(found)]

    async def _handle_dataset(self, name: str) -> None:
        analyst = self._analyst
        await analyst.open()
        dataset = analyst.find_dataset(name, self._scope)
        if self._request.method == "DELETE":
            if not dataset.is_saved:
                raise BadRequest("The data set is the operator's; only one that you saved can go.")
            await analyst.engine.delete(dataset.name, dataset.owner or "")
            await self._respond({})
            return
        table = await analyst.engine.describe(dataset.name, self._scope)
        found = describe_dataset(dataset, table.row_count)
        found["columns"] = [
            {
                "name": one.name,
                "type": one.type,
                "unique_count": one.unique_count,
                "null_percent": one.null_percent,
                "minimum": to_plain(one.minimum),
                "maximum": to_plain(one.maximum),
                "average": to_plain(one.average),
                "values": to_plain(one.values),
                "is_complete": one.is_complete,
            }
            for one in table.columns
        ]
        found["time_range"] = to_plain(table.time_range)
        await self._respond(found)

    async def _download(self, id: str) -> None:
        file = await self._analyst.downloads.open(id, self._scope)
        plain = _PLAIN_NAME.sub("_", file.filename) or "data"
        disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file.filename)}"
        headers = {**PRIVATE, "content-disposition": disposition}
        async with aclosing(file.chunks) as chunks:
            if self._request.method == "HEAD":
                await self._request.respond(200, headers=headers)
                return

            async def write() -> None:
                request = self._request
                async with request.stream(file.media_type, headers=headers) as stream:
                    async for chunk in chunks:
                        await stream.write(chunk)
                    await stream.write(b"", last=True)

            await run_until_disconnect(write(), self._request.receive, None)

    async def _draw(self, name: str) -> None:
        id, _, ending = name.rpartition(".")
        if ending not in ("png", "svg", "json"):
            raise NotFound("A chart ends in .png, .svg or .json.")
        chart = await self._analyst.charts.get(id, self._scope)
        if ending == "json":
            await self._respond(describe_chart(chart))
            return
        theme = "dark" if self._values.get("theme") == "dark" else "light"
        if ending == "svg":
            body, kind = await self._analyst.renderer.render_svg(chart, theme=theme), "svg+xml"
        else:
            body, kind = await self._analyst.renderer.render_png(chart, theme=theme), "png"
        data = body.encode() if isinstance(body, str) else body
        policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        headers = {**PRIVATE, "content-security-policy": policy}
        if self._request.method == "HEAD":
            data = b""
        await self._request.respond(200, data, content_type=f"image/{kind}", headers=headers)

    async def _handle_memories(self) -> None:
        memory = self._analyst.memory
        owner = self._scope.owner
        table = self._values.get("table") or None
        if self._request.method == "DELETE":
            self._check_deletion()
            await self._respond({"count": await memory.forget(owner, table=table)})
            return
        found = await memory.list(owner, table)
        memories = [one.describe() for one in found]
        await self._respond({"enabled": memory.is_enabled, "memories": memories})

    def _check_deletion(self) -> None:
        """Raise `BadRequest` for a deletion without a criterion: it would delete everything."""
        if unknown := sorted(self._values.keys() - {"table", "agent"}):
            raise BadRequest(
                f"There is no parameter {unknown[0][:100]!r}, so nothing was deleted. "
                "One memory is at analyst/memory/ID, those of a table at analyst/memory?table=NAME."
            )
        if self._values.get("table") == "":
            raise BadRequest("table is empty, so nothing was deleted. Name a table.")

    async def _handle_memory(self, id: str) -> None:
        memory, owner = self._analyst.memory, self._scope.owner
        if self._request.method == "DELETE":
            await memory.forget(owner, id)
            await self._respond({})
            return
        changes = read_changes(await self._request.json_object())
        changed = await memory.edit(owner, id, **changes)
        await self._respond(changed.describe())

    async def _respond(self, value: Mapping[str, Any]) -> None:
        body = b"" if self._request.method == "HEAD" else dumps(value)
        await self._request.respond(200, body, headers=PRIVATE)


def describe_dataset(dataset: Dataset, row_count: int | None) -> JsonObject:
    """Return a data set as JSON; the row count covers only the rows that the caller may see."""
    return {
        "name": dataset.name,
        "description": dataset.description,
        "source": dataset.source,
        "row_count": row_count,
        "columns": [{"name": one.name, "type": one.type} for one in dataset.columns],
        "fingerprint": dataset.fingerprint,
        "owner": dataset.owner,
        "is_saved": dataset.is_saved,
        "tags": [*dataset.tags],
    }


def read_changes(fields: JsonObject) -> Mapping[str, Any]:
    """Return the changes to a memory entry. Raises `BadRequest`."""
    if not fields:
        raise BadRequest('The request body is a JSON object such as {"is_pinned": true}.')
    kinds: Mapping[str, type] = {"text": str, "note": str, "is_pinned": bool, "is_good": bool}
    for name, value in fields.items():
        if name not in kinds:
            raise BadRequest(f"The body has {name[:100]!r}; it may have: {', '.join(kinds)}.")
        if not isinstance(value, kinds[name]):
            noun = "a text" if kinds[name] is str else "true or false"
            raise BadRequest(f"{name} is {noun}.")
        if isinstance(value, str) and not (0 < len(value.strip()) <= _MOST_TEXT):
            raise BadRequest(f"{name} has from 1 to {_MOST_TEXT} characters.")
    return fields
