"""What an analyst answered, gathered from the events of its run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.events import ActionExecutionStart, Activity, Event, Interrupt
from copilot_runtime.api.events import TextMessageContent as Text
from copilot_runtime.base.jsonvalue import JsonObject, as_object, as_objects, get_text

_REFUSAL = re.compile(
    r"""
    \b (?: can(?:not|['\u2019]t|\ not) | could(?:n['\u2019]t|\ not) | unable | not\ able
       | (?:do|does|did)(?:n['\u2019]t|\ not) \b [^.!?]{0,40}
         \b (?:have|hold|contain|include|cover|know|exist|say|tell)
       | no \b [^.!?]{0,60} \b (?:data|information|column|table|record|metric|field)s?
       | (?:is|are)(?:n['\u2019]t|\ not) \b [^.!?]{0,40}
         \b (?:available|part|in\ the|included|recorded|known|something)
       | outside | only \b [^.!?]{0,40} \b (?:answer|help)
    ) """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """Rows that a page would get."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_truncated: bool = False


@dataclass(slots=True)
class AnswerRecord:
    """The answer to one question."""

    text: str = ""
    tables: list[AnswerTable] = field(default_factory=list[AnswerTable])
    has_chart: bool = False
    trust: str = ""
    sql: list[str] = field(default_factory=list[str])
    clarification: str = ""
    """A question back."""
    approval: bool = False
    """Whether it waits for a person's approval."""
    calls: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    error: str = ""

    def add(self, event: Event) -> None:
        """Take in what an event says."""
        match event:
            case Text(content=content):
                self.text += content
            case ActionExecutionStart(name=name):
                self.calls.append(name)
            case Interrupt():
                self.approval = True
            case Activity(activity_type=kind, content=content) if kind.startswith("analyst-"):
                self._add_activity(kind.removeprefix("analyst-"), as_object(content))
            case _:
                pass

    @property
    def is_refusal(self) -> bool:
        """Whether it shows no data, and says that it cannot tell."""
        has_data = bool(self.has_chart or any(table.rows for table in self.tables))
        return not has_data and not self.clarification and bool(_REFUSAL.search(self.text))

    def _add_activity(self, kind: str, content: JsonObject) -> None:
        match kind:
            case "table":
                rows = content.get("rows")
                self.tables.append(
                    AnswerTable(
                        columns=[get_text(it, "name") for it in as_objects(content.get("columns"))],
                        rows=[_read_row(row) for row in rows] if isinstance(rows, list) else [],
                        is_truncated=content.get("is_truncated") is True,
                    )
                )
            case "chart":
                self.has_chart = True
            case "answer":
                self.trust = get_text(content, "trust")
                self.sql = [get_text(it, "sql") for it in as_objects(content.get("lineage"))]
            case "question":
                self.clarification = get_text(content, "question")
            case "thoughts":
                thoughts = as_objects(content.get("thoughts"))
                self.thoughts = [get_text(it, "content") for it in thoughts]
            case _:
                pass


def _read_row(row: Any) -> Sequence[Any]:
    return row if isinstance(row, list) else [*as_object(row).values()]
