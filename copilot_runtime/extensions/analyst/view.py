"""Events for frontends besides the text: thoughts, tables, charts, downloads and answers."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from copilot_runtime.api.events import (
    ActionExecutionStart,
    Activity,
    AgentState,
    Custom,
    Event,
    Interrupt,
    ReasoningContent,
    ReasoningEnd,
    ReasoningStart,
    RunFailed,
    TextMessageContent,
)
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.formatting import format_column
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, drop_none, get_text
from copilot_runtime.extensions.analyst.results import (
    Chart,
    Download,
    Findings,
    Fix,
    Lineage,
    ToolResult,
    describe_table,
)
from copilot_runtime.extensions.analyst.session import Thought

_OPTION = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)]|[A-Da-d][.)])\s+(?P<text>\S.*)$")
_MARKUP = re.compile(r"[*_`]{1,3}")
_SENTENCE = re.compile(r"[^.!?\n]*\?")

_MOST_OPTIONS = 6
_LONGEST = 1_200
"""Maximum length of a text that can be a clarification question, in characters."""


@dataclass(frozen=True, slots=True)
class Clarification:
    """The options of a question to the user; their next message is the answer."""

    question: str
    options: Sequence[str] = ()


def find_clarification(text: str) -> Clarification | None:
    """Return the question in a text, if no tool was called, or `None`.

    The text must end with a question, or with a question and its options.
    """
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    if not lines or len(text) > _LONGEST:
        return None
    options: list[str] = []
    while lines and (match := _OPTION.match(lines[-1])):
        options.insert(0, _clean(match["text"]))
        lines.pop()
    if options and lines and lines[-1].endswith(":"):
        lines[-1] = lines[-1][:-1] + ("" if "?" in lines[-1] else "?")
    if not lines or not (lines[-1].endswith("?") or (options and "?" in lines[-1])):
        return None
    found: Sequence[str] = _SENTENCE.findall(lines[-1])
    question = _clean(found[-1]) if found else ""
    return Clarification(question, options[:_MOST_OPTIONS]) if question else None


def _clean(text: str) -> str:
    return _MARKUP.sub("", text).strip(" -\u2013\u2014")


THOUGHTS = "analyst-thoughts"
CHART = "analyst-chart"
TABLE = "analyst-table"
DOWNLOAD = "analyst-download"
ANSWER = "analyst-answer"
QUESTION = "analyst-question"
"""Activity types."""

THOUGHT = "thought"
"""The name of the custom event for a thought, used by the analyst's own streams."""

MOST_THOUGHTS = 50
"""Maximum number of latest thoughts in an activity and in the state."""

_TEXT_THOUGHTS = ("reasoning", "planning")


@dataclass(slots=True)
class Answer:
    """The answer to a question, collected from the events of its run."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    """Texts by message identifier."""
    shown: dict[str, list[JsonObject]] = field(default_factory=dict[str, list[JsonObject]])
    """Contents by activity type, oldest first."""
    calls: list[str] = field(default_factory=list[str])
    """The names of the called tools."""
    approval: Interrupt | None = None
    error: str = ""

    def add(self, event: Event) -> None:
        """Add the content of an event."""
        match event:
            case TextMessageContent(message_id=id, content=content):
                self.texts[id] = self.texts.get(id, "") + content
            case ActionExecutionStart(name=name):
                self.calls.append(name)
            case Activity(activity_type=kind, content=content):
                earlier = [] if kind == THOUGHTS else self.list(kind)
                self.shown[kind] = [*earlier, as_object(content)]
            case Interrupt():
                self.approval = event
            case RunFailed(error=report):
                self.error = report.message
            case _:
                pass

    def list(self, kind: str) -> Sequence[JsonObject]:
        """Return the contents of an activity type."""
        return self.shown.get(kind, [])

    def find(self, kind: str) -> JsonObject | None:
        """Return the latest content of an activity type, or `None`."""
        return next(reversed(self.list(kind)), None)

    @property
    def text(self) -> str:
        """All texts."""
        return "\n\n".join(filter(None, self.texts.values()))

    @property
    def trust(self) -> str:
        """The trust level; empty for an answer without data."""
        return get_text(self.find(ANSWER) or {}, "trust")

    @property
    def lineage(self) -> Sequence[JsonObject]:
        """The provenance of the results."""
        return as_objects((self.find(ANSWER) or {}).get("lineage"))

    @property
    def thoughts(self) -> Sequence[JsonObject]:
        """The latest thoughts."""
        return as_objects((self.find(THOUGHTS) or {}).get("thoughts"))


class View:
    """Converts thoughts and results of a question to events, and tracks the resulting state.

    With `has_thought_events`, each thought is also an event of its own.
    """

    def __init__(self, run: RunInput, *, has_thought_events: bool = False) -> None:
        self._run = run
        self._has_thought_events = has_thought_events
        self._thoughts: list[JsonObject] = []
        self._count = 0
        self._id = f"thoughts-{new_id()}"
        self._is_done = False
        self._state: JsonObject = {
            **as_object(run.agent_input.state),
            **dict.fromkeys(("chart", "table", "download", "answer", "question")),
            "status": "thinking",
            "thoughts": [],
        }

    def show_thoughts(self, thoughts: Sequence[Thought], *, as_text: bool = False) -> list[Event]:
        """Return the events of new thoughts.

        With `as_text`, which is for the time before the answer, they are also reasoning.
        """
        if not thoughts:
            return []
        described = [thought.describe() for thought in thoughts]
        self._thoughts = [*self._thoughts, *described][-MOST_THOUGHTS:]
        self._count += len(thoughts)
        events: list[Event] = []
        if self._has_thought_events:
            events += [Custom(name=THOUGHT, value=one) for one in described]
        events += [self._draw_thoughts(), self.set_state(thoughts=self._thoughts)]
        if as_text:
            texts = [one.content for one in thoughts if one.type in _TEXT_THOUGHTS]
            events += _show_reasoning("\n\n".join(texts))
        return events

    def show_result(self, result: ToolResult) -> list[Event]:
        """Return the events for a tool result."""
        events: list[Event] = []
        if result.table is not None and result.chart is None and result.table.rows:
            sql = result.lineage.sql if result.lineage else ""
            content = describe_table(result.title, result.table, sql)
            content["text"] = write_table(content)
            events += [_show(TABLE, content), self.set_state(table=content)]
        if result.chart is not None:
            content = describe_chart(result.chart)
            events += [_show(CHART, content), self.set_state(chart=content)]
        if result.download is not None:
            content = describe_download(result.download)
            events += [_show(DOWNLOAD, content), self.set_state(download=content)]
        return events

    def show_question(self, question: Clarification) -> list[Event]:
        """Return the events of a clarification question."""
        content: JsonObject = {"question": question.question, "options": [*question.options]}
        return [_show(QUESTION, content), self.set_state(question=content)]

    def show_answer(self, findings: Findings) -> list[Event]:
        """Return the events for the trust level and the provenance of an answer."""
        content = describe_answer(findings)
        return [] if content is None else [_show(ANSWER, content), self.set_state(answer=content)]

    def finish(self, status: str) -> list[Event]:
        """Return the last events: `status` is `done`, `waiting`, `blocked` or `failed`."""
        self._is_done = True
        state = self.set_state(status=status, is_running=False)
        return [self._draw_thoughts(), state] if self._count else [state]

    def set_state(self, *, is_running: bool = True, **changes: Any) -> AgentState:
        """Return the event for a change of the state."""
        self._state = {**self._state, **changes}
        run = self._run
        return AgentState(
            agent=run.agent_name,
            state=self._state,
            node=str(self._state["status"]),
            thread_id=run.thread_id,
            run_id=run.run_id,
            active=is_running,
            running=is_running,
        )

    def _draw_thoughts(self) -> Activity:
        content = {
            "thoughts": self._thoughts,
            "is_done": self._is_done,
            "count": self._count,
        }
        return Activity(message_id=self._id, activity_type=THOUGHTS, content=content)


def describe_chart(chart: Chart) -> JsonObject:
    """Return a chart as JSON for frontends."""
    return {
        "id": chart.id,
        "title": chart.title,
        "plotly": chart.plotly,
        "vega_lite": chart.vega_lite,
        "png_url": chart.url,
        "text": f"![{chart.title}]({chart.url})",
    }


def describe_download(download: Download) -> JsonObject:
    """Return a download as JSON for frontends."""
    text = f"[{download.filename}]({download.url}) ({download.row_count:,} rows)"
    return {**_list_fields(download), "text": text}


def describe_answer(findings: Findings) -> JsonObject | None:
    """Return the trust level and the lineage of an answer, or `None` for one without data."""
    if findings.trust is None:
        return None
    return {"trust": findings.trust, "lineage": [*map(describe_lineage, findings.lineage)]}


def describe_lineage(lineage: Lineage) -> JsonObject:
    """Return the lineage of one result as JSON."""
    return {
        **_list_fields(lineage),
        "fixes": [drop_none(_list_fields(fix)) for fix in lineage.fixes],
    }


def _list_fields(value: Download | Lineage | Fix) -> JsonObject:
    fields = asdict(value).items()
    return {name: [*one] if isinstance(one, tuple) else one for name, one in fields}


_TEXT_ROWS = 10


def write_table(table: JsonObject) -> str:
    """Return the first rows of an `analyst-table` as Markdown."""
    rows: Sequence[Sequence[Any]] = table["rows"]
    names = [_escape(str(column["name"])) for column in table["columns"]]
    columns = [format_column(cells, 80) for cells in zip(*rows[:_TEXT_ROWS], strict=True)]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    for row, texts in zip(rows, zip(*columns, strict=True), strict=False):
        cells = ("" if it is None else _escape(text) for it, text in zip(row, texts, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n{len(rows) - _TEXT_ROWS} more rows"] if len(rows) > _TEXT_ROWS else []
    return "\n".join(lines)


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _show(kind: str, content: JsonObject) -> Activity:
    return Activity(message_id=f"{kind}-{new_id()}", activity_type=kind, content=content)


def _show_reasoning(text: str) -> list[Event]:
    if not text:
        return []
    id = new_id()
    return [
        ReasoningStart(message_id=id),
        ReasoningContent(message_id=id, content=text),
        ReasoningEnd(message_id=id),
    ]
