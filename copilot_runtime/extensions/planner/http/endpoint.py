"""The REST endpoint `plans` below the runtime's URL; `access.py` decides on permissions."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, TypeVar, assert_never
from urllib.parse import parse_qsl, unquote

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.base.errors import CopilotError, Misuse, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.planner.events import ROOT, PlanEntry, encode_event
from copilot_runtime.extensions.planner.feed import TaskText
from copilot_runtime.extensions.planner.http.access import MAX_PLANS, PlanAccess
from copilot_runtime.extensions.planner.log import PlanSummary
from copilot_runtime.extensions.planner.plan import Plan
from copilot_runtime.extensions.planner.view import describe_plan, describe_task
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import (
    Services,
    Transport,
    check_method,
    find_data_scope,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WAKE_SECONDS = 1.0
"""Seconds between checks for server shutdown while an event stream is silent."""
_PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


class PlansEndpoint(Transport):
    """Handles `plans` and all paths below it."""

    paths = ("plans", "plans/{rest:path}")

    def __init__(self, services: Services) -> None:
        self._access = services.parts.get(PlanAccess)
        self._is_closing = lambda: services.runs.runtime.is_closing

    def find_scope(self, request: Request) -> str:
        return find_data_scope(request)

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        from copilot_runtime.extensions.planner.http.rest import rest_routes  # brings FastAPI along

        return rest_routes(path, router)

    async def __call__(self, request: Request) -> None:
        handler = _PlanRequest(self._access, request, self._is_closing)
        match [unquote(part) for part in request.path.split("/")[1:]]:
            case []:
                check_method(request, "GET", "HEAD")
                await handler.list_plans()
            case [plan_id]:
                check_method(request, "GET", "HEAD")
                await handler.show(plan_id)
            case [plan_id, "events"]:
                check_method(request, "GET")
                await handler.stream(plan_id)
            case [plan_id, "tasks", task_id]:
                check_method(request, "GET", "HEAD")
                await handler.show_task(plan_id, task_id)
            case [plan_id, ("stop" | "retry" | "answer") as verb]:
                check_method(request, "POST")
                await handler.act(verb, plan_id)
            case [plan_id, "tasks", task_id, ("stop" | "retry" | "answer") as verb]:
                check_method(request, "POST")
                await handler.act(verb, plan_id, task_id)
            case _:
                raise NotFound(f"There is nothing at {request.path[:100]!r}.")


class _PlanRequest:
    """Handles one request."""

    def __init__(
        self, access: PlanAccess, request: Request, is_closing: Callable[[], bool]
    ) -> None:
        self._access = access
        self._request = request
        self._is_closing = is_closing
        self._values = dict(parse_qsl(request.query_string, keep_blank_values=True))
        self._viewer = access.identify(request.scope, request.headers, request.caller)

    async def list_plans(self) -> None:
        """Respond with a page of plans, newest first."""
        page = await self._access.list_plans(
            self._viewer,
            thread_id=self._values.get("thread_id", ""),
            status=self._values.get("status", ""),
            before=self._values.get("before", ""),
            limit=_read_number(self._values.get("limit", ""), "limit", 50, least=1),
        )
        plans = [*map(encode_summary, page.plans)]
        viewer = {"is_operator": self._viewer.is_operator, "user": self._viewer.caller.user}
        await self._respond({"plans": plans, "next": page.next, **viewer})

    async def show(self, plan_id: str) -> None:
        """Respond with a plan and the tree of its tasks."""
        await self._respond(encode_plan(await self._access.get_plan(self._viewer, plan_id)))

    async def show_task(self, plan_id: str, task_id: str) -> None:
        """Respond with all fields of a task: its calls, its output and its evaluations."""
        plan = await self._access.get_plan(self._viewer, plan_id)
        if task_id not in plan.tasks:
            raise NotFound(f"The plan has no task {task_id[:100]!r}.")
        await self._respond(describe_task(plan.tasks[task_id]))

    async def act(self, verb: str, plan_id: str, task_id: str = ROOT) -> None:
        """Stop, retry or answer, and respond with the plan."""
        match verb:
            case "answer":
                plan = await self._answer(plan_id, task_id)
            case "stop":
                await self._read_fields()
                plan = await self._access.stop(self._viewer, plan_id, task_id)
            case _:
                await self._read_fields()
                plan = await self._access.retry(self._viewer, plan_id, task_id)
        await self._respond(encode_plan(plan))

    async def _answer(self, plan_id: str, task_id: str) -> Plan:
        fields = await self._read_fields("question_id", "answer", "note", "payload")
        question_id = fields.get("question_id", "")
        plan = await self._access.get_plan(self._viewer, plan_id)
        if not question_id:
            question_id = _find_question(plan, task_id)
        elif task_id != ROOT:
            question = plan.questions.get(question_id)
            if question is None or question.task_id != task_id:
                raise NotFound(f"The task {task_id[:100]!r} has no such open question.")
        return await self._access.answer(
            self._viewer,
            plan_id,
            question_id,
            fields.get("answer", ""),
            fields.get("note", ""),
            fields.get("payload"),
        )

    async def stream(self, plan_id: str) -> None:
        """Write what happened behind a number and what happens, to the end of the plan."""
        plan = await self._access.get_plan(self._viewer, plan_id)
        name = "Last-Event-ID" if "last-event-id" in self._request.headers else "after"
        text = self._request.headers.get("last-event-id") or self._values.get("after", "")
        after = _read_number(text, name, 0)
        if after > plan.number:
            raise BadRequest(f"{name} is {after}; the last event of the plan is {plan.number}.")
        if plan.is_over and after == plan.number:
            await self._request.respond(204)  # by which a browser knows not to come back
            return
        await run_until_disconnect(self._write_entries(plan_id, after), self._request.receive, None)

    async def _write_entries(self, plan_id: str, after: int) -> None:
        entries = self._access.follow(self._viewer, plan_id, after)
        items = read_until_closing(entries, self._is_closing)
        async with (
            aclosing(entries),
            aclosing(items),
            self._request.stream_events() as stream,
        ):
            await stream.write(b": what happens to a plan\n\n")
            last = b""
            try:
                async for item in items:
                    await stream.write(encode_frame(item))
            except CopilotError as error:  # it was deleted meanwhile, or cannot be read
                logger.warning("A plan cannot be followed any more: %s", error.message)
                last = encode_failure(error)
            await stream.write(last, last=True)

    async def _read_fields(self, *names: str) -> Mapping[str, Any]:
        """Return the fields of the optional JSON body. Raises `BadRequest`.

        All fields except the payload are strings.
        """
        fields = await self._request.json_object()
        for name, value in fields.items():
            if name not in names:
                choice = ", ".join(names) or "nothing"
                raise BadRequest(f"The request body has {name[:100]!r}; it may have: {choice}.")
            if name != "payload" and not isinstance(value, str):
                raise BadRequest(f"{name} is a text.")
        return fields

    async def _respond(self, value: Mapping[str, Any]) -> None:
        body = b"" if self._request.method == "HEAD" else dumps(value)
        await self._request.respond(200, body, headers=_PRIVATE)


def _find_question(plan: Plan, task_id: str) -> str:
    """Return the id of the open question that an answer without an id is for.

    Only the first question of a task or plan needs no id: an answer that is sent twice would
    otherwise be taken for the next question. Raises `NotFound` if none is open, or `Misuse`.
    """
    states = [state for id, state in plan.tasks.items() if task_id in (ROOT, id)]
    found = [id for state in states for id in state.questions]
    if not found:
        raise NotFound("No question is open.")
    if sum(state.question_count for state in states) > 1:
        raise Misuse(
            "Several questions have been asked, and the answer does not say which it is for. "
            f"question_id is one of: {', '.join(found)}."
        )
    return found[0]


async def read_until_closing(
    items: AsyncIterator[T], is_closing: Callable[[], bool]
) -> AsyncGenerator[T, None]:
    """Yield items until they are exhausted or the server shuts down."""
    step: asyncio.Future[T | None] | None = None
    try:
        while not is_closing():
            if step is None:
                step = asyncio.ensure_future(anext(items, None))
            await asyncio.wait((step,), timeout=_WAKE_SECONDS)
            if not step.done():
                continue
            item, step = step.result(), None
            if item is None:
                return
            yield item
    finally:
        if step is not None:
            step.cancel()
            await asyncio.wait((step,))


def _read_number(text: str, name: str, default: int, least: int = 0) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 16:
        limits = f"from {least} to {MAX_PLANS}" if name == "limit" else "of an event, such as 12"
        raise BadRequest(f"{name} is a number {limits}.")
    return int(text)


def encode_summary(summary: PlanSummary) -> Mapping[str, Any]:
    """Return the JSON of a plan in a list. Times are seconds since 1970."""
    return asdict(summary)


def encode_plan(plan: Plan) -> Mapping[str, Any]:
    """Return the JSON of a plan with its tree, its limits, and the number of its last event."""
    created = plan.created
    return {
        **describe_plan(plan),
        "number": plan.number,
        "user": created.user,
        "thread_id": created.thread_id,
        "run_id": created.run_id,
        "agent": created.agent,
        "trace_id": _find_trace(created.traceparent),
        "limits": asdict(created.limits),
    }


def _find_trace(traceparent: str) -> str:
    """Return the trace id of a W3C `traceparent`, or an empty string."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) > 1 else ""


def encode_frame(item: PlanEntry | TaskText) -> bytes:
    """Encode a server-sent event; entries of the log have their number as its id."""
    match item:
        case PlanEntry():
            head = dumps({"number": item.number, "time": item.time})
            return b"id: %d\ndata: %b,%b\n\n" % (
                item.number,
                head[:-1],
                encode_event(item.event)[1:],
            )
        case TaskText():
            fields = {"type": "task_text", "task_id": item.task_id, "delta": item.delta}
            more = {"is_whole": True} if item.is_whole else {}
            return b"data: %b\n\n" % dumps({**fields, **more})
        case _:
            assert_never(item)


def encode_failure(error: CopilotError) -> bytes:
    """Encode the server-sent event that ends a stream with an error."""
    return b"data: %b\n\n" % dumps({"type": "error", "message": error.public, "code": error.code})
