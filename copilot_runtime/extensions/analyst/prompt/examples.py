"""The operator's examples of questions with their SQL, for the prompt."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.config.yaml_model import find_line, parse_yaml_model
from copilot_runtime.extensions.analyst.prompt.skills import CONTEXT, find_triggers, fold
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_block, quote_line

MOST_EXAMPLES = 3
"""Default number of examples per request."""

LIMIT = 5
"""Maximum number of examples per request."""

CheckSql = Callable[[str], Awaitable[object]]
"""Guards and binds SQL. Raises `CopilotError` if it cannot run."""

_MOST_SQL = 4_000
_DOCUMENT_START = re.compile(r"\A---[ \t]*(\r?\n|\Z)")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlExample:
    """A question, its SQL, and trigger words of similar questions."""

    description: str
    sql: str
    triggers: Sequence[str] = ()
    """Trigger words; without any, it is an example for every question."""
    agent: str | None = None
    """Restricts it to questions about this `agent_name`."""
    source: str = ""
    """The file and line."""
    problem: str = ""
    """The error of its SQL: stale examples are not sent to models."""

    @property
    def is_stale(self) -> bool:
        """`True` if the SQL no longer fits the data."""
        return bool(self.problem)


class _Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sql: str = Field(min_length=1, max_length=_MOST_SQL)
    description: str = Field(default="", max_length=1_000)
    question: str = Field(default="", max_length=1_000)
    triggers: list[str] = []
    agent: str | None = None
    name: str = ""

    @field_validator("triggers")
    @classmethod
    def _require_words(cls, value: list[str]) -> list[str]:
        if not all(fold(item) for item in value):
            raise ValueError("a trigger is empty")
        return value


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    examples: list[_Item] = []
    agent_examples: dict[str, list[_Item]] = {}


def parse_examples(text: str, source: str) -> Sequence[SqlExample]:
    """Return the examples of a file: `examples`, and `agent_examples` by `agent_name`.

    A file that is a list contains `examples`. Raises `ConfigurationFailed` with the line of each
    mistake.
    """
    text = _DOCUMENT_START.sub("\n", text.removeprefix("\ufeff"))
    is_list = _is_list(text)
    body = "examples:\n" + text if is_list else text
    shift = 1 if is_list else 0
    file = parse_yaml_model(_File, body, source, first_line=1 - shift)

    def make(item: _Item, path: Sequence[int | str], agent: str | None) -> SqlExample:
        line = find_line(body, path) - shift
        return SqlExample(
            description=item.description or item.question,
            sql=item.sql.strip(),
            triggers=tuple(dict.fromkeys(item.triggers)),
            agent=item.agent or agent,
            source=f"{source}:{line}",
        )

    found = [make(item, ["examples", at], None) for at, item in enumerate(file.examples)]
    for agent, items in file.agent_examples.items():
        found += [make(item, ["agent_examples", agent, at], agent) for at, item in enumerate(items)]
    return found


async def check_examples(examples: Iterable[SqlExample], check: CheckSql) -> Sequence[SqlExample]:
    """Return the examples, marking those whose SQL cannot run as stale and logging each."""
    results: list[SqlExample] = []
    for example in examples:
        problem = ""
        try:
            await check(example.sql)
        except CopilotError as error:
            problem = quote_line(error.message, 300)
            if problem != example.problem:
                logger.warning("The example of SQL in %s is stale: %s", example.source, problem)
        results.append(replace(example, problem=problem))
    return results


def select_examples(
    message: str,
    context: Sequence[str],
    examples: Iterable[SqlExample],
    *,
    agent_name: str | None = None,
    limit: int = MOST_EXAMPLES,
) -> Sequence[SqlExample]:
    """Return the examples for a question: those of the agent first, otherwise in file order."""
    recent = [message, *[*context][-CONTEXT:]]
    fitting = [
        example
        for example in examples
        if not example.is_stale
        and example.agent in (None, agent_name)
        and (not example.triggers or find_triggers(example.triggers, recent))
    ]
    ranked = sorted(fitting, key=lambda example: (example.agent is None, not example.triggers))
    return ranked[: max(0, min(limit, LIMIT))]


def render_examples(examples: Iterable[SqlExample]) -> str:
    """Return examples as SQL, each with its question as a comment."""
    return "\n\n".join(
        f"-- {quote_line(example.description or 'Example', 300)}\n{quote_block(example.sql)}"
        for example in examples
    )


def _is_list(text: str) -> bool:
    import yaml

    try:
        return isinstance(yaml.compose(text, yaml.SafeLoader), yaml.SequenceNode)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def describe_stale(examples: Iterable[SqlExample]) -> Sequence[Mapping[str, Any]]:
    """Return the positions and errors of stale examples, as JSON."""
    return [{"source": one.source, "problem": one.problem} for one in examples if one.is_stale]
