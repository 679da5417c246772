"""What a person asks, as a run has it: the question, what went before, and what the page says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.messages import ActionExecutionMessage, Message, TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.jsonvalue import as_object, as_text, get_text, parse_text
from copilot_runtime.extensions.analyst.input_guard import RequestBlocked, guard_question
from copilot_runtime.extensions.analyst.prompt.history import Entry

_SQL_TOOLS = ("run_sql", "plot_data", "save_as_dataset", "download_data")

MOST_NAME = 200
"""Characters of a name that a page sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, before anything is looked at."""

    message: str
    """The last text of the person; empty if there is none."""
    message_id: str = ""
    history: Sequence[Entry] = ()
    """Texts before it, the oldest first."""
    rest: Sequence[Message] = ()
    """What came after it: calls and results of an answer that goes on."""
    dataset_label: str = ""
    agent_name: str | None = None
    data_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    last_sql: str | None = None
    """SQL of the conversation so far, the newest."""


def read_question(run: RunInput) -> Question:
    """Return the question of a run. The page names data set and agent in its properties."""
    messages = run.messages
    place = next(
        (at for at in range(len(messages) - 1, -1, -1) if _is_text(messages[at], "user")), None
    )
    last = None if place is None else messages[place]
    before, rest = (messages, ()) if place is None else (messages[:place], messages[place + 1 :])
    properties, state = run.properties, as_object(run.agent_input.state)
    return Question(
        message=last.content if isinstance(last, TextMessage) else "",
        message_id=last.id if last is not None else "",
        history=[
            Entry("user" if one.role == "user" else "assistant", one.content)
            for one in before
            if isinstance(one, TextMessage) and one.role in ("user", "assistant") and one.content
        ],
        rest=[one for one in rest if not _is_instruction(one)],
        dataset_label=_find_text(("dataset_label", "dataset"), properties, state),
        agent_name=_find_text(("agent_name",), properties) or None,
        data_context=as_object(properties.get("data_context")),
        last_sql=_find_sql(messages),
    )


def is_safe(text: str) -> bool:
    """Return whether the input guard lets an earlier message pass."""
    try:
        guard_question(text)
    except RequestBlocked:
        return False
    return True


def _is_text(message: Message, role: str) -> bool:
    return isinstance(message, TextMessage) and message.role == role


def _is_instruction(message: Message) -> bool:
    return isinstance(message, TextMessage) and message.role in ("system", "developer")


def _find_text(names: Sequence[str], *places: Mapping[str, Any]) -> str:
    texts = (as_text(place.get(name)) for place in places for name in names)
    return next((text[:MOST_NAME] for text in texts if text), "")


def _find_sql(messages: Sequence[Message]) -> str | None:
    """Return the SQL of the last call that has some."""
    for message in reversed(messages):
        if isinstance(message, ActionExecutionMessage) and message.name in _SQL_TOOLS:
            sql = get_text(as_object(parse_text(message.arguments or "{}")), "sql")
            if sql:
                return sql
    return None
