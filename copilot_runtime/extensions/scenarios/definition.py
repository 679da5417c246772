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
    """Convert a value parsed from YAML to JSON. Raises `ValueError` if that is impossible."""
    match value:
        case dict():
            entries = cast("dict[Any, Any]", value)
            return {_as_key(key): _as_json(item) for key, item in entries.items()}
        case list() | tuple() | set():
            return [_as_json(item) for item in cast("Iterable[Any]", value)]
        case date():  # includes datetime
            return value.isoformat()
        case bytes():
            raise ValueError("a value of bytes (!!binary) is not valid JSON")
        case float() if not isfinite(value):
            raise ValueError(f"the number {value} is not valid JSON")
        case _:
            return value


def _as_key(key: Any) -> str:
    """Return a key as a string: YAML reads some keys as another type."""
    return key if isinstance(key, str) else format_value(_as_json(key))


def _expand(name: str) -> BeforeValidator:
    """Accept a string or a list as shorthand for an object with only the field `name`."""

    def expand(value: Any) -> Any:
        return value if isinstance(value, dict | BaseModel) else {name: value}

    return BeforeValidator(expand)


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


def _check_query(query: str) -> str:
    if not query.strip():
        raise ValueError("the JMESPath is empty")
    try:
        TraceQuery(query)
    except CopilotError as error:
        raise ValueError(f"{query!r} is not a JMESPath: {error.message.rstrip('.')}") from None
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
    """The base class of objects in a file. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TextCheck(Part):
    """The expectations of a text. A plain string means `contains`."""

    equals: str | None = None
    contains: Texts = ()
    matches: Patterns = ()
    not_contains: Texts = ()
    not_matches: Patterns = ()

    def find_violation(self, text: str) -> str | None:
        """Return the first expectation that a text violates, or None if it meets all."""
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
    """An expected tool call. A plain string means `name`."""

    name: Text
    arguments: Json = Field(default_factory=dict)
    """The expected arguments; others are allowed."""
    matches: Mapping[str, Pattern] = Field(default_factory=dict)
    """Regular expressions by argument path, such as `filter.limit`, matched against its text."""
    where: Query | None = None
    """A JMESPath query over `{name, arguments, result}` that must match."""
    result: TextExpectation | None = None
    count: Count | None = None
    """The exact number of such calls; if unset, at least one."""
    at_least: Count | None = None
    at_most: Count | None = None

    @model_validator(mode="after")
    def _check_counts(self) -> "CallCheck":
        if self.count is not None and (self.at_least, self.at_most) != (None, None):
            raise ValueError("count is exact: leave out at_least and at_most")
        return self


class ResourceCheck(Part):
    """Resources that must have been found, by the end of a file, identifier, title or URL."""

    resources: Annotated[Texts, Field(min_length=1)]
    at_least: Count | None = None
    """The minimum number of them; if unset, all."""

    @model_validator(mode="after")
    def _check_least(self) -> "ResourceCheck":
        if self.at_least is not None and self.at_least > len(self.resources):
            raise ValueError(
                f"at_least is {self.at_least}, but there are {len(self.resources)} resources"
            )
        return self


class TraceCheck(Part):
    """A JMESPath query over the spans, ordered by start. A plain string means `query`."""

    query: Query
    equals: Any = None
    """The expected result. If unset, any result except null, false, 0 and empty values passes."""


class TaskCheck(Part):
    """An expected task of the plan, at any level."""

    name: Text
    status: Text | None = None
    assistant: Text | None = None
    passed: bool | None = None
    """Whether its last evaluation passed."""


class PlanCheck(Part):
    """The expectations of the plan. A plain string means `status`."""

    status: Text | None = None
    tasks: tuple[Annotated[TaskCheck, _expand("name")], ...] = ()
    where: Query | None = None
    """A JMESPath query over the plan that must match."""


class Limits(Part):
    """Limits on the usage of a conversation."""

    requests: Count | None = None
    """Model requests."""
    calls: Count | None = None
    tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    dollars: Annotated[float, Field(ge=0)] | None = None
    seconds: Seconds | None = None
    """Seconds of waiting for models."""


class FailureCheck(Part):
    """The error with which a turn must end. A plain string means `message`."""

    code: Text | None = None
    message: TextExpectation = TextCheck()


class JudgeCheck(Part):
    """The criteria of an LLM judge. A plain string or list means `criteria`."""

    criteria: Annotated[Texts, Field(min_length=1)]
    model: Text | None = None
    votes: Annotated[int, Field(ge=1, le=99)] = 1
    """The number of votes, of which the majority decides."""
    script: tuple[Any, ...] = ()
    """Verdicts of a scripted judge, one per vote."""

    @field_validator("votes")
    @classmethod
    def _check_votes(cls, votes: int) -> int:
        if votes % 2 == 0:
            raise ValueError("an even number of votes may have no majority")
        return votes


class Expectation(Part):
    """The expectations of a turn, or of a whole conversation."""

    calls: tuple[Annotated[CallCheck, _expand("name")], ...] | None = None
    """Expected tool calls; an empty list means that no tool may be called."""
    in_order: bool = False
    """Whether these calls must occur in this order; others may be between them."""
    other_calls: bool = True
    """Whether calls that are not listed are allowed."""
    not_called: Texts = ()
    """Tools that must not be called; `*` is a wildcard."""
    recalls: Annotated[ResourceCheck, _expand("resources")] | None = None
    text: TextExpectation | None = None
    answered_by: Text | None = None
    """The assistant that gives the final answer."""
    asks: tuple[TextExpectation, ...] | None = None
    """Expected questions to the user; an empty list means that none may be asked."""
    state: Json | None = None
    """Expected fields of the state; others are allowed."""
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
    """A tool call by a scripted model."""

    name: Text
    arguments: Any = Field(default_factory=dict[str, Any])
    """A string is sent unchanged, even if it is not valid JSON."""


class TokenCount(Part):
    """The token usage that a scripted answer reports."""

    input: Count = 0
    output: Count = 0


class RequestCheck(Part):
    """The condition under which a scripted answer matches a request."""

    agent: Text | None = None
    last: TextExpectation | None = None
    """The text of the last message: a question, or the result of a tool."""
    system: TextExpectation | None = None
    """The system message of the request."""
    tool: Text | None = None
    """A tool that the request must offer."""


def _expand_answer(value: Any) -> Any:
    """Accept a string as the text, and `call` with `arguments` as the only call."""
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
    """The answer of a scripted model to one request."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    error: Text | None = None
    """The error message with which the model fails after the text."""
    when: RequestCheck | None = None
    """If unset, the answer matches any request. Answers are used in the order of the script."""
    repeats: bool = False
    """Whether it may answer any number of matching requests, including none."""
    usage: TokenCount | None = None

    @model_validator(mode="after")
    def _check_content(self) -> "ScriptedAnswer":
        if not self.text and not self.calls and self.error is None:
            raise ValueError("an answer needs a text, calls or an error")
        return self


Script = tuple[Annotated[ScriptedAnswer, BeforeValidator(_expand_answer)], ...]


class ToolStub(Part):
    """A stub of a tool: one of the page, or a replacement of one of the server."""

    name: Text
    description: str = ""
    parameters: Json = Field(default_factory=lambda: {"type": "object", "properties": {}})
    result: Any = None
    """The result of each call."""
    results: tuple[Any, ...] = ()
    """The results of successive calls; the last one repeats."""
    error: Text | None = None
    """The error message with which each call fails."""


class ContextEntry(Part):
    """An entry of the context that the page shares with the model."""

    description: Text
    value: Any


class Turn(Part):
    """A message of the user, with the expectations of the response."""

    say: Text
    answers: tuple[Any, ...] = ()
    """The user's answers to questions, in order."""
    script: Script = ()
    expect: Expectation = Expectation()


class Options(Part):
    """The options of one scenario, or of all scenarios of a file."""

    agent: Text | None = None
    user: Text | None = None
    """The id of the authenticated user."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    properties: Json = Field(default_factory=dict)
    context: tuple[ContextEntry, ...] = ()
    state: Any = None
    tools: tuple[ToolStub, ...] = ()
    """The tools of the page."""
    stubs: tuple[ToolStub, ...] = ()
    """Replacements for the server tools of the same names, or additional server tools."""
    tags: Texts = ()
    models: Texts = ()
    """The scenario is played with each of these models; by default, with the agent's own."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1
    pass_rate: Rate = 1.0
    """The fraction of the repetitions that must pass."""
    timeout: Seconds = 120.0
    judge_model: Text | None = None


class Scenario(Options):
    """A conversation with its expectations."""

    name: Text
    description: str = ""
    skip: Text | None = None
    """The reason to skip the scenario."""
    say: Text | None = None
    """Shorthand for a single turn."""
    answers: tuple[Any, ...] = ()
    turns: tuple[Turn, ...] = ()
    script: Script = ()
    expect: Expectation = Expectation()
    """Expectations of the conversation as a whole."""

    @model_validator(mode="after")
    def _check_turns(self) -> "Scenario":
        if (self.say is None) == (not self.turns):
            raise ValueError("a scenario needs either `say` or `turns`")
        if self.answers and self.turns:
            raise ValueError("`answers` belong to a turn: write them there")
        return self

    @property
    def conversation(self) -> Sequence[Turn]:
        """The turns, including the one written as `say`."""
        return self.turns or (Turn(say=self.say or "", answers=self.answers),)

    @property
    def is_scripted(self) -> bool:
        """Whether the file contains answers for the model."""
        return bool(self.script) or any(turn.script for turn in self.turns)


class ScenarioFile(Part):
    """A scenario file. Values are converted to JSON types; dates become text, as models write."""

    defaults: Options = Options()
    """Defaults for all scenarios of the file."""
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
        """Return the scenarios, each with the defaults of the file."""
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
