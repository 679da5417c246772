"""Questions over the analyst's own routes: start a run, and convert its events for the client."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import uuid4

from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    LAST,
    Custom,
    Event,
    Events,
    Interrupt,
    RunFailed,
    RunFinished,
)
from copilot_runtime.api.messages import Message, TextMessage, new_id
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.errors import ErrorReport, NotFound
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, as_text
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.http.access import Viewer
from copilot_runtime.extensions.analyst.spans import start_request_span
from copilot_runtime.extensions.analyst.view import (
    ANSWER,
    CHART,
    DOWNLOAD,
    QUESTION,
    TABLE,
    THOUGHT,
    Answer,
)
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Log, Run
from copilot_runtime.telemetry.span import Span
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.store import ThreadKey
from copilot_runtime.transports.body import BadRequest


class Frame(NamedTuple):
    """A server-sent event; `data` is `None` for the end."""

    name: str
    data: JsonObject | None


class StreamEncoder:
    """Encodes the events of one run, in order."""

    def __init__(self) -> None:
        self.thoughts: list[JsonObject] = []
        self._answer = Answer()

    def feed(self, event: Event) -> Sequence[Frame]:
        """Return the client's frames for an event of the run; for most events, there are none."""
        self._answer.add(event)
        match event:
            case Custom(name=name, value=value) if name == THOUGHT:
                self.thoughts.append(as_object(value))
                return [Frame(THOUGHT, self.thoughts[-1])]
            case RunFinished():
                return [Frame("response", self.build_response()), Frame("done", None)]
            case RunFailed(error=report):
                return [Frame("error", describe_error(report)), Frame("done", None)]
            case _:
                return []

    def build_response(self) -> JsonObject:
        """Return the response of a finished run; without text, the question of its approval."""
        answer = self._answer
        approval = None if answer.approval is None else _describe_approval(answer.approval)
        texts = (text for text in reversed(answer.texts.values()) if text.strip())
        return {
            "success": True,
            "response": next(texts, "") or str((approval or {}).get("question") or ""),
            "thoughts_count": len(self.thoughts),
            "chart": answer.find(CHART),
            "download": answer.find(DOWNLOAD),
            "charts": [*answer.list(CHART)],
            "tables": [*answer.list(TABLE)],
            "downloads": [*answer.list(DOWNLOAD)],
            "answer": answer.find(ANSWER),
            "question": answer.find(QUESTION),
            "approval": approval,
        }


def _describe_approval(interrupt: Interrupt) -> JsonObject:
    fields = as_object(interrupt.value)
    return {
        "id": interrupt.interrupt_id,
        "question": interrupt.message,
        **{name: fields.get(name) for name in ("tool", "arguments", "rows")},
    }


def describe_error(report: ErrorReport) -> JsonObject:
    """Return an error as JSON, with only the details that clients may see."""
    return {"error": report.message, "code": report.code}


MOST_MESSAGE = 100_000
"""Maximum length of a message that is accepted, in characters; the guard cuts it much shorter."""

_FIELDS = frozenset(
    {
        *("message", "conversation_history", "dataset_label", "data_context", "agent_name"),
        *("session_id", "user_id", "approval", "resumable", "dataset"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The parsed body of a question."""

    message: str
    history: Sequence[JsonObject] = ()
    dataset_label: str = ""
    data_context: JsonObject | None = None
    agent_name: str | None = None
    session_id: str = ""
    approval: JsonObject | None = None
    """The user's decision about an approval: `id`, `approved`, `note`."""
    is_resumable: bool = False
    """`True` if the run continues after the client disconnects, so that it can reconnect."""


def read_ask(fields: JsonObject) -> Ask:
    """Parse the body of a question. Raises `BadRequest`."""
    message = fields.get("message")
    approval = fields.get("approval")
    if message is None and approval is not None:
        message = ""
    if not isinstance(message, str) or (not message and approval is None):
        raise BadRequest("message is a text of at least one character.")
    if approval is not None and not (
        isinstance(approval, dict)
        and isinstance(approval.get("id"), str)
        and isinstance(approval.get("approved"), bool)
    ):
        raise BadRequest('approval is {"id": "…", "approved": true or false}.')
    for name in ("dataset_label", "dataset", "agent_name", "session_id"):
        if not isinstance(fields.get(name), str | None):
            raise BadRequest(f"{name} is a text.")
    for name, kind, noun in (
        ("conversation_history", list, "list of messages"),
        ("data_context", dict, "JSON object"),
    ):
        if not isinstance(fields.get(name), kind | None):
            raise BadRequest(f"{name} is a {noun}.")
    return Ask(
        message="" if approval is not None else message[:MOST_MESSAGE],
        history=as_objects(fields.get("conversation_history") or []),
        dataset_label=fields.get("dataset_label") or fields.get("dataset") or "",
        data_context=fields.get("data_context"),
        agent_name=fields.get("agent_name") or None,
        session_id=fields.get("session_id") or "",
        approval=approval,
        is_resumable=fields.get("resumable") is True,
    )


class _RequestAgent(Agent):
    """The analyst for one request; spans of its run are children of the request's span."""

    def __init__(self, agent: AnalystAgent, span: Span) -> None:
        self._agent = agent
        self._span = span

    def check(self, run: RunInput) -> None:
        self._agent.check(run)

    def run(self, run: RunInput) -> Events:
        """Yield the analyst's events, with an additional event for each thought."""
        return self._agent.answer(run, request_span=self._span, has_thought_events=True)


class Answers:
    """Running and finished answers, readable by the users who asked."""

    def __init__(self, runs: Conversations, telemetry: Telemetry) -> None:
        self._runs = runs
        self._telemetry = telemetry

    async def start(self, ask: Ask, viewer: Viewer) -> "Run":
        """Start the run of a question. Raises the errors that prevent its start."""
        request = await self._build_run(ask, viewer)
        caller = viewer.caller
        span = start_request_span(
            self._telemetry,
            thread_id=request.thread_id,
            user=caller.user,
            parent=caller.parent,
        )
        if span.is_recording:
            request = replace(request, parent=span.context)
        run = self._runs.create(request)
        run.ended.add_done_callback(lambda _: span.end())
        try:
            await self._runs.launch(run, _RequestAgent(viewer.agent, span))
        except BaseException as error:
            span.fail(error)
            span.end()
            raise
        return run

    async def follow(
        self, log_id: str, log: Log, after: int = 0
    ) -> AsyncGenerator[tuple[str, Frame], None]:
        """Yield the frames of an answer after a sequence number, each with its identifier."""
        encoder, number = StreamEncoder(), 0
        async with aclosing(log) as batches:
            async for _, events in batches:
                for event in events:
                    for frame in encoder.feed(event):
                        number += 1
                        if number > after:
                            yield f"{log_id}:{number}", frame
                    if isinstance(event, LAST):
                        return

    async def read(self, log_id: str) -> tuple[Frame, StreamEncoder]:
        """Wait for the run to end, and return its answer or its error."""
        encoder = StreamEncoder()
        async with aclosing(self._runs.follow(log_id)) as batches:
            async for _, events in batches:
                for event in events:
                    for frame in encoder.feed(event):
                        if frame.name in ("response", "error"):
                            return frame, encoder
        raise asyncio.CancelledError  # the log was deleted: nothing can be read

    async def find(self, last_id: str, user: str | None) -> tuple[str, Log, int]:
        """Return the log and the sequence number of a frame identifier. Raises `NotFound`."""
        log_id, _, number = last_id.rpartition(":")
        if number.isascii() and number.isdecimal() and len(number) <= 9:
            with suppress(NotFound):
                _, log = await self._runs.find_log(log_id, user)
                return log_id, log, int(number)
        raise NotFound("There is no such answer, or it is not kept any more. Ask again.")

    async def _build_run(self, ask: Ask, viewer: Viewer) -> RunInput:
        caller = viewer.caller
        names = {"dataset_label": ask.dataset_label, "agent_name": ask.agent_name}
        names["data_context"] = ask.data_context  # pyright: ignore[reportArgumentType]
        messages = await self._find_messages(ask, caller.user)
        if ask.message:
            messages.append(TextMessage(id=new_id(), role="user", content=ask.message))
        return RunInput(
            thread_id=ask.session_id or new_id(),
            run_id=new_id(),
            log_id=uuid4().hex,
            agent=viewer.name,
            messages=messages,
            properties=caller.merge_properties({k: v for k, v in names.items() if v}),
            headers=caller.headers,
            url=caller.url,
            user=caller.user,
            identity=caller.identity,
            parent=caller.parent,
            persist=bool(ask.session_id),
            detached=True,
            resume=_build_resume(ask),
        )

    async def _find_messages(self, ask: Ask, user: str | None) -> list[Message]:
        """Return the messages of the stored session, or else those of the request."""
        if ask.session_id:
            stored = await self._runs.runs(ThreadKey.of(user, ask.session_id))
            if stored:
                return fold_thread(run.events for run in stored)
        return [
            TextMessage(
                id=new_id(),
                role="user" if entry.get("role") == "user" else "assistant",
                content=as_text(entry.get("content")),
            )
            for entry in ask.history
            if entry.get("role") in ("user", "assistant") and as_text(entry.get("content"))
        ]


def _build_resume(ask: Ask) -> Sequence[Resume]:
    if ask.approval is None:
        return ()
    payload = {key: ask.approval[key] for key in ("approved", "note") if key in ask.approval}
    return [Resume(value="", interrupt_id=ask.approval["id"], payload=payload)]
