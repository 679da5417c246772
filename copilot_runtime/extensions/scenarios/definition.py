"""The schema of scenario files: conversations and their expectations."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from math import isfinite
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.scenarios.values import (
    SECONDS,
    PatternTimeout,
    format_value,
    search_pattern,
)
from copilot_runtime.extensions.tracing.store.query import TraceQuery


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _as_json(value: Any) -> Any:
    """Return what YAML has read as JSON. Raises `ValueError` for what has no such form."""
    match value:
        case dict():
            entries = cast("dict[Any, Any]", value)
            return {_as_key(key): _as_json(item) for key, item in entries.items()}
        case list() | tuple() | set():
            return [_as_json(item) for item in cast("Iterable[Any]", value)]
        case date():  # a datetime is one, too
            return value.isoformat()
        case bytes():
            raise ValueError("there is a value of bytes (!!binary), which is no JSON")
        case float() if not isfinite(value):
            raise ValueError(f"the number {value} is no JSON")
        case _:
            return value


def _as_key(key: Any) -> str:
    """Return the name of a field: YAML reads some as something else."""
    return key if isinstance(key, str) else format_value(_as_json(key))


def _expand(name: str) -> BeforeValidator:
    """Let a text or a list stand for a value whose field `name` it is."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, dict | BaseModel) else {name: value}

    return BeforeValidator(expand)


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return pattern


def _check_query(query: str) -> str:
    if not query.strip():
        raise ValueError("the JMESPath is empty")
    try:
        TraceQuery(query)
    except CopilotError as error:
        raise ValueError(f"{query!r} is no JMESPath: {error.message.rstrip('.')}") from None
    return query


_TOO_SLOW = f" (the search took more than {SECONDS:g} s: write the expression more simply)"

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_as_list)]
Pattern = Annotated[Text, AfterValidator(_check_pattern)]
Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(_as_list)]
Query = Annotated[str, AfterValidator(_check_query)]
Count = Annotated[int, Field(ge=0, strict=True)]
Rate = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Json = Mapping[str, Any]


class Part(BaseModel):
    """A value in a file. A field that it does not have is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextCheck(Part):
    """What a text must be. A text alone means `contains`."""

    equals: str | None = None
    contains: Texts = ()
    matches: Patterns = ()
    not_contains: Texts = ()
    not_matches: Patterns = ()

    def find_violation(self, text: str) -> str | None:
        """Return what is expected of a text that it is not; None if it is all that."""
        if self.equals is not None and text != self.equals:
            return f"equals {self.equals!r}"
        for part in self.contains:
            if part not in text:
                return f"contains {part!r}"
        for pattern in self.matches:
            try:
                if not search_pattern(pattern, text):
                    return f"matches {pattern!r}"
            except PatternTimeout:
                return f"matches {pattern!r}{_TOO_SLOW}"
        for part in self.not_contains:
            if part in text:
                return f"does not contain {part!r}"
        for pattern in self.not_matches:
            try:
                if search_pattern(pattern, text):
                    return f"does not match {pattern!r}"
            except PatternTimeout:
                return f"does not match {pattern!r}{_TOO_SLOW}"
        return None


TextExpectation = Annotated[TextCheck, _expand("contains")]


class CallCheck(Part):
    """A call that must be among those of tools. A name alone will do."""

    name: Text
    arguments: Json = Field(default_factory=dict)
    """Those that it must have; it may have others."""
    matches: Mapping[str, Pattern] = Field(default_factory=dict)
    """Regular expressions of arguments as text, by their names; dots lead into objects."""
    where: Query | None = None
    """A JMESPath over `{name, arguments, result}` that must find something."""
    result: TextExpectation | None = None
    count: Count | None = None
    """How many such calls there must be; without it, one or more."""
    at_least: Count | None = None
    at_most: Count | None = None

    @model_validator(mode="after")
    def _check_counts(self) -> "CallCheck":
        if self.count is not None and (self.at_least, self.at_most) != (None, None):
            raise ValueError("count is exact: leave out at_least and at_most")
        return self


class ResourceCheck(Part):
    """Resources that must have been found: by an identifier, its end, or an address."""

    resources: Annotated[Texts, Field(min_length=1)]
    at_least: Count | None = None
    """How many of them are enough; without it, all."""

    @model_validator(mode="after")
    def _check_least(self) -> "ResourceCheck":
        if self.at_least is not None and self.at_least > len(self.resources):
            raise ValueError(
                f"at_least is {self.at_least}, but there are {len(self.resources)} resources"
            )
        return self


class TraceCheck(Part):
    """A JMESPath over the list of the spans, by their start. A text alone will do."""

    query: Query
    equals: Any = None
    """What it must give. Without it: anything but null, false, 0, and what is empty."""


class TaskCheck(Part):
    """A task that must be in the plan, at any level."""

    name: Text
    status: Text | None = None
    assistant: Text | None = None
    passed: bool | None = None
    """Whether its last evaluation was good."""


class PlanCheck(Part):
    """What became of the plan. A text alone means `status`."""

    status: Text | None = None
    tasks: tuple[Annotated[TaskCheck, _expand("name")], ...] = ()
    where: Query | None = None
    """A JMESPath over the plan that must find something."""


class Limits(Part):
    """How much a conversation may take."""

    requests: Count | None = None
    """To models."""
    calls: Count | None = None
    tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    dollars: Annotated[float, Field(ge=0)] | None = None
    seconds: Seconds | None = None
    """Of waiting for models."""


class FailureCheck(Part):
    """The error by which a turn must end. A text alone means `message`."""

    code: Text | None = None
    message: TextExpectation = TextCheck()


class JudgeCheck(Part):
    """What a model judges. A text or a list alone are the criteria."""

    criteria: Annotated[Texts, Field(min_length=1)]
    model: Text | None = None
    votes: Annotated[int, Field(ge=1, le=99)] = 1
    """How many times it is asked: the majority counts."""
    script: tuple[Any, ...] = ()
    """The verdicts of a scripted judge, one for each vote."""

    @field_validator("votes")
    @classmethod
    def _check_votes(cls, votes: int) -> int:
        if votes % 2 == 0:
            raise ValueError("an even number of votes may have no majority")
        return votes


class Expectation(Part):
    """What is expected of a turn, or of a whole conversation."""

    calls: tuple[Annotated[CallCheck, _expand("name")], ...] | None = None
    """Calls that must have been made; an empty list means that no tool may be called."""
    in_order: bool = False
    """Whether these calls come one after the other; others may be between them."""
    other_calls: bool = True
    """Whether there may be calls that are not listed."""
    not_called: Texts = ()
    """Tools of which no call may be made."""
    recalls: Annotated[ResourceCheck, _expand("resources")] | None = None
    text: TextExpectation | None = None
    answered_by: Text | None = None
    """The assistant who answers in the end."""
    asks: tuple[TextExpectation, ...] | None = None
    """Questions to the person; an empty list means that nothing may be asked."""
    state: Json | None = None
    """Fields that the state must have; it may have others."""
    trace: Annotated[
        tuple[Annotated[TraceCheck, _expand("query")], ...], BeforeValidator(_as_list)
    ] = ()
    plan: Annotated[PlanCheck, _expand("status")] | None = None
    limits: Limits | None = None
    fails: Annotated[FailureCheck, _expand("message")] | None = None
    judge: Annotated[JudgeCheck, _expand("criteria")] | None = None

    @model_validator(mode="after")
    def _check_calls(self) -> "Expectation":
        if not self.calls and (self.in_order or not self.other_calls):
            raise ValueError("in_order and other_calls need calls")
        return self


class ScriptedCall(Part):
    """A call that a scripted model makes."""

    name: Text
    arguments: Any = Field(default_factory=dict[str, Any])
    """A text is sent as it is, also if it is no JSON."""


class TokenCount(Part):
    """What an answer of a scripted model is said to have used."""

    input: Count = 0
    output: Count = 0


class RequestCheck(Part):
    """Which requests an answer is for."""

    agent: Text | None = None
    last: TextExpectation | None = None
    """What the last message says: a question, or the result of a tool."""
    system: TextExpectation | None = None
    """What the model is told."""
    tool: Text | None = None
    """A tool that it may call."""


def _expand_answer(value: Any) -> Any:
    """Let a text stand for an answer, and `call` with `arguments` for its only call."""
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", dict(value))
    if "call" in fields and "calls" not in fields:
        call = {"name": fields.pop("call")}
        if "arguments" in fields:
            call["arguments"] = fields.pop("arguments")
        fields["calls"] = [call]
    return fields


class ScriptedAnswer(Part):
    """What a scripted model answers to one request."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    error: Text | None = None
    """The model fails so, after the text."""
    when: RequestCheck | None = None
    """Without it, answers are given one after the other."""
    repeats: bool = False
    """Whether it is given to every such request, or to none."""
    usage: TokenCount | None = None

    @model_validator(mode="after")
    def _check_content(self) -> "ScriptedAnswer":
        if not self.text and not self.calls and self.error is None:
            raise ValueError("an answer needs a text, calls or an error")
        return self


Script = tuple[Annotated[ScriptedAnswer, BeforeValidator(_expand_answer)], ...]


class ToolStub(Part):
    """A tool that returns what the file says: one of the page, or in place of one of the server."""

    name: Text
    description: str = ""
    parameters: Json = Field(default_factory=lambda: {"type": "object", "properties": {}})
    result: Any = None
    """What each call returns."""
    results: tuple[Any, ...] = ()
    """What one call after the other returns; the last one is for all that follow."""
    error: Text | None = None
    """What each call fails with."""


class ContextEntry(Part):
    """What the page shows to the model."""

    description: Text
    value: Any


class Turn(Part):
    """What a person says, and what is expected then."""

    say: Text
    answers: tuple[Any, ...] = ()
    """What the person answers to questions, in their order."""
    script: Script = ()
    expect: Expectation = Expectation()


class Options(Part):
    """What may be said of one scenario, or of all of a file."""

    agent: Text | None = None
    user: Text | None = None
    """Who is signed in."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    properties: Json = Field(default_factory=dict)
    context: tuple[ContextEntry, ...] = ()
    state: Any = None
    tools: tuple[ToolStub, ...] = ()
    """Those of the page."""
    stubs: tuple[ToolStub, ...] = ()
    """Tools in place of those of the server that have their names."""
    tags: Texts = ()
    models: Texts = ()
    """Models with each of which it is played; by default, the agent's own."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    pass_rate: Rate = 1.0
    """The part of the repetitions that must pass."""
    timeout: Seconds = 120.0
    judge_model: Text | None = None


class Scenario(Options):
    """A conversation, and what is expected of it."""

    name: Text
    description: str = ""
    skip: Text | None = None
    """Why it is not played at the moment."""
    say: Text | None = None
    """The only turn, in short."""
    answers: tuple[Any, ...] = ()
    turns: tuple[Turn, ...] = ()
    script: Script = ()
    expect: Expectation = Expectation()
    """Of the conversation as a whole."""

    @model_validator(mode="after")
    def _check_turns(self) -> "Scenario":
        if (self.say is None) == (not self.turns):
            raise ValueError("a scenario needs either `say` or `turns`")
        if self.answers and self.turns:
            raise ValueError("`answers` belong to a turn: write them there")
        return self

    @property
    def conversation(self) -> Sequence[Turn]:
        """The turns, however they are written."""
        return self.turns or (Turn(say=self.say or "", answers=self.answers),)

    @property
    def is_scripted(self) -> bool:
        """Whether the model's answers are in the file."""
        return bool(self.script) or any(turn.script for turn in self.turns)


class ScenarioFile(Part):
    """A file of scenarios. Its values are those of JSON: a day is text, for models write it so."""

    defaults: Options = Options()
    """For all scenarios of the file that do not say otherwise."""
    scenarios: tuple[Scenario, ...]

    @model_validator(mode="before")
    @classmethod
    def _convert(cls, values: Any) -> Any:
        return _as_json(values)

    @field_validator("scenarios")
    @classmethod
    def _check_names(cls, scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
        if not scenarios:
            raise ValueError("there is none")
        names = [scenario.name for scenario in scenarios]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two scenarios have the name {twice!r}")
        return scenarios

    def list_scenarios(self) -> Sequence[Scenario]:
        """Return the scenarios, each with what the file says of all."""
        common = {name: getattr(self.defaults, name) for name in self.defaults.model_fields_set}
        return [
            scenario.model_copy(
                update={
                    name: value
                    for name, value in common.items()
                    if name not in scenario.model_fields_set
                }
            )
            for scenario in self.scenarios
        ]
