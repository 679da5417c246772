"""Prepare a question for the model: classification, skills, examples and history.

The functions here are deterministic: they read no clock, files or data.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from copilot_runtime.extensions.analyst.prompt.context_folder import (
    MOST_EXAMPLES,
    SqlExample,
    render_examples,
    select_examples,
)
from copilot_runtime.extensions.analyst.prompt.skills import (
    MOST_SKILLS,
    Skill,
    render_skills,
    select_skills,
)
from copilot_runtime.extensions.analyst.prompt.untrusted import (
    is_instruction,
    quote_line,
)

HistoryUnit = Literal["entries", "turns"]

HISTORY_LIMIT = 6
"""Default number of entries or turns of the conversation that are sent."""

MOST_CHARS = 4_000
"""Maximum characters of one earlier message."""

WITHHELD = "(This message was withheld: it looked like instructions to the assistant.)"

_ROLES = ("user", "assistant")

IsSafe = Callable[[str], bool]


class HistoryEntry(NamedTuple):
    """An earlier message."""

    role: Literal["user", "assistant"]
    content: str


def trim_history(
    history: Sequence[Mapping[str, Any] | HistoryEntry] | None,
    *,
    limit: int = HISTORY_LIMIT,
    unit: HistoryUnit = "entries",
    is_safe: IsSafe | None = None,
) -> Sequence[HistoryEntry]:
    """Return the last messages of users and the assistant.

    A turn is a user message with everything up to the next one. Messages that `is_safe` rejects are
    replaced by a notice; long messages are truncated.
    """
    entries = [entry for item in history or () if (entry := _read(item)) is not None]
    if limit <= 0:
        return []
    if unit == "turns":
        starts = [at for at, entry in enumerate(entries) if entry.role == "user"]
        entries = entries[starts[-limit] :] if len(starts) > limit else entries
    else:
        entries = entries[-limit:]
    return [
        entry if _is_fine(entry, is_safe) else entry._replace(content=WITHHELD) for entry in entries
    ]


def _read(item: Mapping[str, Any] | HistoryEntry) -> HistoryEntry | None:
    if isinstance(item, HistoryEntry):
        return item
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES or not isinstance(content, str) or not content.strip():
        return None
    return HistoryEntry("user" if role == "user" else "assistant", content[:MOST_CHARS])


def _is_fine(entry: HistoryEntry, is_safe: IsSafe | None) -> bool:
    return is_safe is None or is_safe(entry.content)


Classification = Literal[
    "data_question",
    "needs_clarification",
    "chit_chat",
    "prompt_injection",
    "harmful",
    "out_of_scope",
]

_GREETING = re.compile(
    r"(?:hi|hello|hey|howdy|good (?:morning|afternoon|evening|day)"
    r"|thanks?(?: you)?(?: so much| a lot)?"
    r"|thx|bye|goodbye|see you|how are you(?: doing)?(?: today)?|what'?s up|cheers|great|cool|nice"
    r"|perfect|awesome|ok(?:ay)?)(?: there| all| everyone| bot| team)?",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"(?:help|show(?: me)?(?: it| that| this| everything| something)?|more|again|tell me more|why"
    r"|what|which one|that|this|it|do it|compare(?: them)?|plot(?: it| that| this)?|chart"
    r"|analy[sz]e(?: it| this| that)?)",
    re.IGNORECASE,
)
_EDGES = " \t\n.,!?;:)(*-\u2013\u2014\"'"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A class and its confidence, from 0 to 1. It does not block anything; the guards do."""

    classification: Classification
    confidence: float


def classify(message: str, *, has_context: bool = False) -> Judgement:
    """Classify a message by rules.

    With `has_context`, there are earlier messages: then "plot it" is a question.
    """
    text = " ".join(message.split()).strip(_EDGES)
    if not text:
        return Judgement("needs_clarification", 1.0)
    if is_instruction(text):
        return Judgement("prompt_injection", 0.8)
    if _is_all(_GREETING, text):
        return Judgement("chit_chat", 0.9)
    if _VAGUE.fullmatch(text):
        return (
            Judgement("data_question", 0.5)
            if has_context
            else Judgement("needs_clarification", 0.7)
        )
    return Judgement("data_question", 1.0 if len(text.split()) > 2 else 0.8)


def _is_all(pattern: re.Pattern[str], text: str) -> bool:
    """Return `True` if every part of a text between commas and the like matches."""
    parts = [part.strip(_EDGES) for part in re.split(r"[,.!;?]+", text)]
    return all(pattern.fullmatch(part) for part in parts if part)


_MOST_NAMES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A question with its context for the model."""

    message: str
    selected_skill_names: Sequence[str] = ()
    skills_injection: str = ""
    sql_examples_injection: str = ""
    context_snippets: Sequence[str] = ()
    """The frontend's description of its data, one line each: names, never rows."""
    conversation_history: Sequence[HistoryEntry] = ()
    classification: Classification = "data_question"
    confidence: float = 1.0


def prepare_request(
    message: str,
    history: Sequence[Mapping[str, Any] | HistoryEntry] | None = None,
    *,
    skills: Iterable[Skill] = (),
    examples: Iterable[SqlExample] = (),
    agent_name: str | None = None,
    dataset_label: str = "",
    data_context: Mapping[str, Any] | None = None,
    history_limit: int = HISTORY_LIMIT,
    history_unit: HistoryUnit = "entries",
    max_skills: int = MOST_SKILLS,
    max_examples: int = MOST_EXAMPLES,
    is_safe: IsSafe | None = None,
) -> PreparedRequest:
    """Return the request for a question that has passed the input guard.

    Args:
        message: The guarded question.
        history: Earlier messages, oldest first, without this one.
        skills: All available skills; matching ones are selected.
        examples: All available examples.
        agent_name: The agent whose rows the question is about, if the frontend sent it.
        dataset_label: The frontend's name of the data set.
        data_context: The frontend's `format`, `row_count`, `metric_columns` and `columns`.
        history_limit: Maximum length of the history.
        history_unit: The unit of `history_limit`.
        max_skills: Maximum number of skills.
        max_examples: Maximum number of examples.
        is_safe: Returns `True` if an earlier message may be sent: the input guard as a predicate.
    """
    entries = trim_history(history, limit=history_limit, unit=history_unit, is_safe=is_safe)
    recent = [entry.content for entry in entries]
    selected = select_skills(message, recent, skills, max_skills)
    chosen = select_examples(message, recent, examples, agent_name=agent_name, limit=max_examples)
    judgement = classify(message, has_context=bool(entries))
    return PreparedRequest(
        message=message,
        selected_skill_names=[skill.name for skill in selected],
        skills_injection=render_skills(selected),
        sql_examples_injection=render_examples(chosen),
        context_snippets=_list_snippets(dataset_label, data_context or {}),
        conversation_history=entries,
        classification=judgement.classification,
        confidence=judgement.confidence,
    )


def _list_snippets(label: str, context: Mapping[str, Any]) -> Sequence[str]:
    """Return lines with the names that a frontend sent; all other values are dropped."""
    snippets = [f"Data set: {quote_line(label)}"] if label else []
    if isinstance(form := context.get("format"), str) and form:
        snippets.append(f"Format: {quote_line(form)}")
    if isinstance(count := context.get("row_count"), int) and not isinstance(count, bool):
        snippets.append(f"Rows on the page: {count:,}")
    for key, title in (("metric_columns", "Metrics"), ("columns", "Columns")):
        names = context.get(key)
        if isinstance(names, list | tuple):
            texts = [quote_line(name) for name in names[:_MOST_NAMES] if isinstance(name, str)]
            snippets += [f"{title} on the page: {', '.join(texts)}"] if texts else []
    return snippets
