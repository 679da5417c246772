"""Parses an assistant's file: YAML front matter, followed by its instructions."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.config.yaml_model import parse_yaml_model, split_front_matter
from copilot_runtime.extensions.knowledge.resource_types import describe

SUFFIX = ".agent.md"

MAX_SIZE = 256 * 1024
"""Maximum size of a file, in bytes."""

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"


AGENT_PREFIX = "common.Agent."
"""Prefix of an assistant's name in its identifier. Names are accepted with and without it."""


def strip_prefix(name: str) -> str:
    """Return the name of an assistant without the prefix of its identifier."""
    while name.startswith(AGENT_PREFIX):
        name = name.removeprefix(AGENT_PREFIX)
    return name


def _strip_name(value: Any) -> Any:
    return strip_prefix(value.strip()) if isinstance(value, str) else value


def _split(value: Any) -> Any:
    """Parse `a, b` as a list."""
    return (
        [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str)
        else value
    )


Name = Annotated[
    str, BeforeValidator(_strip_name), StringConstraints(pattern=f"^{_NAME}$", max_length=64)
]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?\[\]!-]{1,100}$")]
Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_split)]


class HandOff(BaseModel):
    """Another assistant that may take over, and the prompt for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Annotated[Text, Field(min_length=1)]
    agent: Name
    prompt: Text = ""


class AssistantDefinition(BaseModel):
    """An assistant as defined in its file.

    `purpose`, `instructions`, `applicability` and `evaluation` describe it for the selection of
    assistants: they are compared with the description of a task.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    description: Text = ""
    purpose: Text = ""
    instructions: Text = ""
    applicability: Text = ""
    evaluation: Text = ""
    model: str = ""
    """The model; empty for the server's default."""
    tools: Patterns | None = None
    """Glob patterns of the server's tools that it may call; None for all."""
    handoffs: tuple[HandOff, ...] = ()
    infer: bool = True
    """True if other assistants may call it as a sub-agent."""
    budget: Annotated[int, Field(gt=0)] | None = None
    """Token budget of a model request; None for the model's context size."""
    max_turns: Annotated[int, Field(gt=0, le=1000)] = 20
    """Maximum number of turns with tool calls before the answer."""
    max_calls: Annotated[int, Field(gt=0, le=10_000)] = 200
    """Maximum number of tool calls in one run, including those of sub-agents."""
    max_parallel: Annotated[int, Field(gt=0, le=256)] = 16
    """Maximum number of concurrent tool calls; further ones wait."""
    continuations: Annotated[int, Field(ge=0, le=100)] = 0
    """Maximum number of continuations of an answer that was truncated at the model's limit."""
    idempotent: bool = False
    """True if an interrupted task can be restarted from its beginning."""
    body: str = ""
    """Its instructions for the model, as a template."""
    body_line: int = 1
    """The line of the file in which the instructions start."""

    @field_validator("handoffs")
    @classmethod
    def _refuse_equal_labels(cls, handoffs: tuple[HandOff, ...]) -> tuple[HandOff, ...]:
        labels = [handoff.label for handoff in handoffs]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(f"two hand-offs have the label {min(twice)!r}")
        return handoffs

    @property
    def profile(self) -> str:
        """All descriptive texts, without titles, which would make different texts similar."""
        own = (self.purpose, self.instructions, self.applicability, self.evaluation)
        return "\n\n".join(text for text in (self.description, *own) if text)

    @property
    def summary(self) -> str:
        """A one-text description."""
        return describe(self.model_dump()) or self.description

    def describe_resource(self) -> JsonObject:
        """Return the description for a resource: all fields but the instructions for the model."""
        fields = self.model_dump(
            include={"purpose", "instructions", "applicability", "evaluation", "description"}
        )
        return drop_none(
            {
                **fields,
                "content": self.summary,
                "title": self.name,
                "model": self.model or None,
                "tools": None if self.tools is None else [*self.tools],
                "handoffs": [handoff.agent for handoff in self.handoffs],
                "infer": self.infer,
            }
        )


def parse_assistant(text: str, source: str) -> AssistantDefinition:
    """Return the assistant defined in a file. The default of its name is the file's name.

    Raises `ConfigurationFailed` with the line of each error.
    """
    if len(text) > MAX_SIZE:
        raise ConfigurationFailed(f"{source}:1: the file is larger than {MAX_SIZE // 1024} kB.")
    front_matter, body = split_front_matter(text)
    if front_matter is None and text.lstrip("\ufeff").startswith("---"):
        raise ConfigurationFailed(
            f"{source}:1: the front matter has no end.",
            hint="Write a line --- below its last field.",
        )
    named = parse_yaml_model(_NameOnly, front_matter or "", source, first_line=2).name
    definition = parse_yaml_model(
        AssistantDefinition,
        front_matter or "",
        source,
        first_line=2,
        extra={
            "body": body,
            "body_line": text.count("\n") - body.count("\n") + 1,
            "name": named or _name_file(source),
        },
    )
    if not definition.body.strip():
        raise ConfigurationFailed(
            f"{source}:{1 + text.count(chr(10))}: the assistant has no instructions.",
            hint="Write them below the front matter.",
        )
    return definition


class _NameOnly(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str = ""


def _name_file(source: str) -> str:
    return re.split(r"[\\/]", source)[-1].removesuffix(SUFFIX)


def check_references(definitions: Sequence[AssistantDefinition]) -> None:
    """Raise `ConfigurationFailed` if an assistant hands off to an unknown one."""
    names = {definition.name for definition in definitions}
    for definition in definitions:
        for handoff in definition.handoffs:
            if handoff.agent not in names:
                raise ConfigurationFailed(
                    f"The assistant {definition.name!r} hands off to {handoff.agent!r}, which is "
                    "not there.",
                    hint=f"There are: {', '.join(sorted(names))}.",
                )
