"""Prepares a question for the model: what kind it is, its skills, examples and history.

Nothing here reads a clock, a file or data: equal input gives an equal request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.extensions.analyst.prompt.classify import Classification, classify
from copilot_runtime.extensions.analyst.prompt.examples import (
    MOST_EXAMPLES,
    SqlExample,
    render_examples,
    select_examples,
)
from copilot_runtime.extensions.analyst.prompt.history import (
    HISTORY_LIMIT,
    Entry,
    HistoryUnit,
    IsSafe,
    trim_history,
)
from copilot_runtime.extensions.analyst.prompt.skills import (
    MOST_SKILLS,
    Skill,
    render_skills,
    select_skills,
)
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_line

_MOST_NAMES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A question with what goes to the model around it."""

    message: str
    selected_skill_names: Sequence[str] = ()
    skills_injection: str = ""
    sql_examples_injection: str = ""
    context_snippets: Sequence[str] = ()
    """What the page says about its data, a line each: names, never rows."""
    conversation_history: Sequence[Entry] = ()
    classification: Classification = "data_question"
    confidence: float = 1.0

    @property
    def messages(self) -> Sequence[Entry]:
        """The messages for the model: the history, then the question."""
        return [*self.conversation_history, Entry("user", self.message)]


def prepare_request(
    message: str,
    history: Sequence[Mapping[str, Any] | Entry] | None = None,
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
    """Return the request for a question that the input guard let pass.

    Args:
        message: What the guard returned.
        history: Earlier messages, oldest first, without this one.
        skills: All there are: those that fit are selected.
        examples: All there are.
        agent_name: Whose rows the question is about, if the page said so.
        dataset_label: What the page calls the data set.
        data_context: What the page says of it: `format`, `row_count`, `metric_columns`, `columns`.
        history_limit: How much of the history is sent.
        history_unit: What `history_limit` counts.
        max_skills: Skills, at most.
        max_examples: Examples, at most.
        is_safe: Whether an earlier message may be sent: the input guard, as a question.
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
    """Return lines of the names that a page sends; anything else it sends is left out."""
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
