"""The record of a turn or a conversation, which expectations are checked against."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

from copilot_runtime.agents.instructions import SOURCES
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.events import Activity, Event
from copilot_runtime.api.messages import Message, ResultMessage
from copilot_runtime.base.jsonvalue import as_object, get_text, parse_object
from copilot_runtime.extensions.assistants.definition import strip_prefix
from copilot_runtime.extensions.assistants.delegation import RUN_HANDOFF, read_switch
from copilot_runtime.extensions.knowledge.identifiers import BASE, find_path
from copilot_runtime.extensions.planner.agent import ACTIVITY as PLAN
from copilot_runtime.extensions.scenarios.models import Spending
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import count_spans, sort_spans
from copilot_runtime.telemetry import semconv
from copilot_runtime.testing.client import Reply
from copilot_runtime.testing.protocols import ReplyFailed, ToolCall


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The error with which a turn ended."""

    code: str
    message: str


@dataclass(slots=True)
class FoundResource:
    """A retrieved resource, with the names that a scenario file may use for it."""

    id: str
    title: str = ""
    url: str = ""
    subjects: Sequence[str] = ()
    """The IRIs of its subjects."""

    @property
    def names(self) -> Sequence[str]:
        """Its identifier, file, URL, title and subjects, without empty ones."""
        names = (self.id, find_path(self.id), self.url, self.title, *self.subjects)
        return [name for name in names if name]

    def __str__(self) -> str:
        own = (iri for iri in self.subjects if not iri.startswith(BASE))
        return next(own, "") or find_path(self.id) or self.title or self.id


@dataclass(slots=True, kw_only=True)
class TurnRecord:
    """The observed result of one or several turns."""

    say: str = ""
    answers: Sequence[Any] = ()
    text: str = ""
    calls: Sequence[ToolCall] = ()
    questions: Sequence[str] = ()
    resources: Sequence[FoundResource] = ()
    """Resources shown as sources, or contained in search results."""
    answered_by: str = DEFAULT_AGENT
    state: Any = None
    plan: Any = None
    """The last snapshot of a plan."""
    failure: RunFailure | None = None
    spending: Spending = field(default_factory=Spending)
    spans: Sequence[Record] = ()

    @property
    def results(self) -> Sequence[str]:
        """The results of tool calls, including those that only the trace contains."""
        texts = [call.result for call in self.calls if call.result is not None]
        for span in self.spans:
            result = span.get("content", {}).get(semconv.TOOL_CALL_RESULT)
            if result is not None:
                texts.append(result if isinstance(result, str) else repr(result))
        return texts


def build_record(
    replies: Sequence[Reply], failure: ReplyFailed | None, *, say: str, agent: str, **fields: Any
) -> TurnRecord:
    """Build the record of a turn. `agent` is the agent that answered before it."""
    if failure is not None and failure.reply is not None:
        replies = [*replies, failure.reply]
    events = [event for reply in replies for event in reply.events]
    messages = [message for reply in replies for message in reply.messages]
    plans = [*_read_activities(events, PLAN)]
    calls = [call for reply in replies for call in reply.tool_calls]
    return TurnRecord(
        say=say,
        text="\n\n".join(reply.text for reply in replies if reply.text),
        calls=calls,
        questions=[it.message or "" for reply in replies for it in reply.interrupts],
        resources=_merge([*_read_sources(events), *_read_results(calls)]),
        answered_by=_find_assistant(messages, agent),
        state=replies[-1].state if replies else None,
        plan=plans[-1] if plans else None,
        failure=failure and RunFailure(failure.code, failure.message),
        **fields,
    )


def join_records(records: Sequence[TurnRecord]) -> TurnRecord:
    """Join the records of all turns into the record of the conversation."""
    last = records[-1]
    plans = [record.plan for record in records if record.plan is not None]
    spending = Spending()
    for record in records:
        spending += record.spending
    return TurnRecord(
        say=" / ".join(record.say for record in records),
        text="\n\n".join(record.text for record in records if record.text),
        calls=[*chain.from_iterable(record.calls for record in records)],
        questions=[*chain.from_iterable(record.questions for record in records)],
        resources=_merge(chain.from_iterable(record.resources for record in records)),
        answered_by=last.answered_by,
        state=last.state,
        plan=plans[-1] if plans else None,
        failure=last.failure,
        spending=spending,
        spans=sort_spans(chain.from_iterable(record.spans for record in records)),
    )


def _read_activities(events: Sequence[Event], kind: str) -> Iterator[dict[str, Any]]:
    for event in events:
        if isinstance(event, Activity) and event.activity_type == kind:
            yield as_object(event.content)


def _read_sources(events: Sequence[Event]) -> Iterator[FoundResource]:
    for content in _read_activities(events, SOURCES):
        yield from _read_resources(content.get("sources"))


def _read_results(calls: Sequence[ToolCall]) -> Iterator[FoundResource]:
    """Yield the results of knowledge tools."""
    for call in calls:
        yield from _read_resources(parse_object(call.result or "").get("results"))


def _read_resources(items: Any) -> Iterator[FoundResource]:
    for item in cast("list[Any]", items) if isinstance(items, list) else []:
        fields = as_object(item)
        if id := get_text(fields, "id"):
            yield FoundResource(id, get_text(fields, "title"), get_text(fields, "url"))


def _merge(resources: Iterable[FoundResource]) -> Sequence[FoundResource]:
    """Return resources without duplicates."""
    found: dict[str, FoundResource] = {}
    for resource in resources:
        found.setdefault(resource.id, resource)
    return [*found.values()]


def add_spans(record: TurnRecord, spans: Sequence[Record]) -> None:
    """Add data that only the trace has: spans, and documents that sub-agents found."""
    documents = [
        span.get("content", {}).get(name)
        for span in spans
        for name in (semconv.RETRIEVAL_DOCUMENTS, semconv.MEMORY_RECORDS)
    ]
    more = chain.from_iterable(map(_read_resources, documents))
    record.spans = spans
    record.resources = _merge([*record.resources, *more])


def sum_spending(spans: Sequence[Record]) -> Spending:
    """Sum the usage and cost of model requests from their spans."""
    chats = [it for it in spans if it["attributes"].get(semconv.OPERATION_NAME) in _INFERENCES]
    summary = count_spans("", chats)
    return Spending(
        requests=summary.model_calls,
        input_tokens=summary.input_tokens,
        output_tokens=summary.output_tokens,
        dollars=summary.dollars,
        unpriced=summary.unpriced,
        seconds=sum(it["end_time_unix_nano"] - it["start_time_unix_nano"] for it in chats) / 1e9,
    )


_INFERENCES = frozenset(semconv.INFERENCES)


def _find_assistant(messages: Sequence[Message], before: str) -> str:
    """Return the agent that answers after these messages."""
    for message in reversed(messages):
        if isinstance(message, ResultMessage) and message.name == RUN_HANDOFF:
            switch = read_switch(message)
            if switch is not None:
                return strip_prefix(switch.agent)
    return before
