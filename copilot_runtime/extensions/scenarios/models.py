"""Route model requests to a script, to the tested model, or to the original model."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from inspect import signature
from time import monotonic
from typing import Any, cast

from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.adapters.pricing import load_installed_prices, price_usage
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Event, Events, Usage
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.registry import Registry
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.scenarios.definition import (
    RequestCheck,
    ScriptedAnswer,
    ScriptedCall,
    TextCheck,
)
from copilot_runtime.extensions.scenarios.values import shorten

MODEL = "scripted"
"""The default name of a scripted model."""


@dataclass(slots=True)
class _Answer:
    """A scripted answer, and how often it was played."""

    content: ScriptedAnswer
    count: int = 0

    @property
    def is_left(self) -> bool:
        return self.count == 0 or self.content.repeats


class ScriptPlayer:
    """Answers model requests from a script.

    A request gets the first remaining answer whose `when` matches it. Identifiers are derived from
    the request number, so that they are the same in each run.
    """

    def __init__(self) -> None:
        self._answers: list[_Answer] = []
        self._number = 0
        self.complaint = ""
        """The reason why a request could not be answered."""

    def extend(self, answers: Sequence[ScriptedAnswer]) -> None:
        """Append answers to the script."""
        self._answers += map(_Answer, answers)

    def play(self, request: ChatRequest) -> Iterator[Event]:
        """Yield the events of the next scripted answer. Raises `Misuse` if none is left."""
        answer = next(
            (it for it in self._answers if it.is_left and _fits(it.content.when, request)), None
        )
        self._number += 1
        if answer is None:
            self.complaint = (
                f"The script has no answer for request {self._number} to the model, of "
                f"{request.agent or 'the plain chat'}, after: {shorten(_read_last(request))!r}."
            )
            raise Misuse(self.complaint)
        answer.count += 1
        return self._play(answer.content, request, self._number)

    def list_leftovers(self) -> Sequence[str]:
        """Return descriptions of the scripted answers that were never used."""
        return [
            _describe(it.content) for it in self._answers if not it.count and not it.content.repeats
        ]

    def _play(self, answer: ScriptedAnswer, request: ChatRequest, number: int) -> Iterator[Event]:
        if answer.text:
            yield from say(_split(answer.text), id=request.message_id or f"answer-{number}")
        for place, each in enumerate(answer.calls, 1):
            yield from call(each.name, _encode(each), id=f"call-{number}-{place}")
        if answer.usage is not None:
            yield Usage(
                model=request.parameters.model or MODEL,
                input_tokens=answer.usage.input,
                output_tokens=answer.usage.output,
                provider=MODEL,
            )
        if answer.error is not None:
            raise CopilotError(answer.error)


def _split(text: str) -> Sequence[str]:
    """Split a text into chunks, as a model would stream it."""
    return re.findall(r"\s*\S+\s*", text) or [text]


def _encode(each: ScriptedCall) -> str:
    return each.arguments if isinstance(each.arguments, str) else dumps(each.arguments).decode()


def _fits(when: RequestCheck | None, request: ChatRequest) -> bool:
    if when is None:
        return True
    return (
        when.agent in (None, request.agent)
        and (when.tool is None or any(it.name == when.tool for it in request.actions))
        and _has(when.last, _read_last(request))
        and _has(when.system, "\n\n".join(_read_system(request.messages)))
    )


def _has(check: TextCheck | None, text: str) -> bool:
    return check is None or check.find_violation(text) is None


def _read_last(request: ChatRequest) -> str:
    return next(
        (
            message.content if isinstance(message, TextMessage) else message.result
            for message in reversed(request.messages)
            if isinstance(message, TextMessage | ResultMessage)
        ),
        "",
    )


def _read_system(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, TextMessage) and message.role in ("system", "developer"):
            yield message.content


def _describe(answer: ScriptedAnswer) -> str:
    names = ", ".join(each.name for each in answer.calls)
    return shorten(answer.text) or (f"a call of {names}" if names else f"error: {answer.error}")


_CURRENT: "ContextVar[AttemptModels]" = ContextVar("_CURRENT")
"""The attempt to which model requests of the current task belong."""


@dataclass(slots=True)
class Spending:
    """Token usage and cost of model requests."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Number of requests without a known price."""
    seconds: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        return self - (Spending() - other)

    def __sub__(self, other: "Spending") -> "Spending":
        return Spending(
            self.requests - other.requests,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.dollars - other.dollars,
            self.unpriced - other.unpriced,
            self.seconds - other.seconds,
        )


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model that replaces an agent's own."""

    name: str
    adapter: Adapter | None = None
    """The adapter for its requests; None: the agent's own provider."""

    def stream(self, request: ChatRequest, usual: Adapter) -> Events:
        """Send a request to this model."""
        model = self.name.partition(":")[2] if self.adapter else self.name
        parameters = replace(request.parameters, model=model)
        return (self.adapter or usual).stream(replace(request, parameters=parameters))


def choose_model(name: str) -> ModelChoice:
    """Return a model by its name, such as `gpt-4o`, or `anthropic:claude-sonnet-4-5`.

    Raises `ConfigurationFailed` for a provider that cannot be used.
    """
    provider, colon, model = name.partition(":")
    providers = Registry("copilot_runtime.adapters", ADAPTERS)
    if not colon or provider not in providers:
        return ModelChoice(name)
    if not model:
        raise ConfigurationFailed(f"{name!r} names no model, as in {provider}:NAME.")
    make = providers[provider]
    try:
        signature(make).bind(model=model)
    except TypeError:
        raise ConfigurationFailed(f"{provider!r} has no choice of models.") from None
    return ModelChoice(name, make(model=model))


class AttemptModels:
    """The models of one attempt."""

    def __init__(
        self, script: ScriptPlayer | None, choice: ModelChoice | None, *, is_offline: bool
    ) -> None:
        self.script = script
        self.choice = choice
        self.spending = Spending()
        self.is_offline = is_offline

    @contextmanager
    def enter(self) -> Generator[None]:
        """Assign requests of this task and of tasks that it starts to this attempt."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    async def stream(self, request: ChatRequest, usual: Adapter) -> Events:
        """Yield the answer of the selected model, and count its usage."""
        spending, is_priced = self.spending, False
        spending.requests += 1
        async with aclosing(self._choose(request, usual)) as events:
            while True:
                start = monotonic()
                event = await anext(events, None)
                spending.seconds += monotonic() - start
                if event is None:
                    break
                if isinstance(event, Usage):
                    if self.script is None:
                        await load_installed_prices()
                    is_priced = _count(spending, event) or is_priced
                yield event
        spending.unpriced += not is_priced

    def _choose(self, request: ChatRequest, usual: Adapter) -> Events:
        if self.script is not None:
            return _play(self.script, request)
        if self.is_offline:
            raise Misuse("The scenario has no script, and --offline allows no other model.")
        return self.choice.stream(request, usual) if self.choice else usual.stream(request)


class ModelRouter:
    """Intercepts the requests to an application's adapters while scenarios are played.

    Args:
        adapters: Those of the application.
        find_thread: Returns the id of the current task's thread, or an empty string.
        is_offline: Whether only scripted models may be requested.
    """

    def __init__(
        self,
        adapters: Sequence[Adapter],
        find_thread: Callable[[], str],
        *,
        is_offline: bool = False,
    ) -> None:
        self._adapters = adapters
        self._find_thread = find_thread
        self._is_offline = is_offline
        self._attempts: dict[str, AttemptModels] = {}

    @contextmanager
    def attach(self, thread_id: str, models: AttemptModels) -> Generator[None]:
        """Assign all requests for a thread to an attempt, regardless of their task."""
        self._attempts[thread_id] = models
        try:
            with models.enter():
                yield
        finally:
            del self._attempts[thread_id]

    def _find_models(self, thread_id: str = "") -> AttemptModels | None:
        """Return the attempt's models by task, by thread, or by the current trace, or `None`."""
        models = _CURRENT.get(None) or self._attempts.get(thread_id)
        return models or self._attempts.get(self._find_thread())

    @contextmanager
    def open(self) -> Generator[None]:
        """Intercept all requests."""
        former = [dict(vars(adapter)) for adapter in self._adapters]
        for adapter in self._adapters:
            self._stand_before(adapter)
        try:
            yield
        finally:
            for adapter, fields in zip(self._adapters, former, strict=True):
                for name in ("stream", "endpoint", "check", "check_key"):
                    vars(adapter).pop(name, None)
                    if name in fields:
                        setattr(adapter, name, fields[name])

    def _stand_before(self, adapter: Adapter) -> None:
        """Replace the methods of one adapter object, which agents already reference."""
        usual = cast("Adapter", _Methods(adapter))
        is_offline = self._is_offline

        def stream(request: ChatRequest) -> Events:
            models = self._find_models(request.thread_id)
            if models is not None:
                return models.stream(request, usual)
            if is_offline:
                raise Misuse("A model was requested outside of all scenarios.")
            return usual.stream(request)

        def endpoint(request: ChatRequest) -> ModelEndpoint:
            models = self._find_models(request.thread_id)
            if models is None or models.script is None:
                return usual.endpoint(request)
            model = models.choice.name if models.choice else request.parameters.model or MODEL
            return ModelEndpoint(MODEL, model, in_process=True)

        def check(run: RunInput) -> None:
            models = self._find_models(run.thread_id)
            if models is None or models.script is None:
                usual.check(run)

        async def check_key() -> None:
            if not is_offline:
                await usual.check_key()

        replacements: Mapping[str, Callable[..., Any]] = {
            "stream": stream,
            "endpoint": endpoint,
            "check": check,
            "check_key": check_key,
        }
        for name, method in replacements.items():
            setattr(adapter, name, method)


class _Methods:
    """The original methods of an adapter, bound before they are replaced."""

    def __init__(self, adapter: Adapter) -> None:
        self.stream = adapter.stream
        self.endpoint = adapter.endpoint
        self.check = adapter.check
        self.check_key = adapter.check_key


def list_adapters(parts: Sequence[object]) -> list[Adapter]:
    """Return the distinct adapters of agents and other objects; wrappers are unwrapped."""
    found: dict[int, Adapter] = {}
    for part in parts:
        for adapter in _find_adapters(part):
            found[id(adapter)] = adapter
    return [*found.values()]


def _find_adapters(part: object) -> Iterator[Adapter]:
    inner = getattr(part, "adapter", None)
    if isinstance(inner, Adapter):
        yield from _find_adapters(inner)
    elif isinstance(part, Adapter):
        yield part


async def _play(script: ScriptPlayer, request: ChatRequest) -> Events:
    for event in script.play(request):
        yield event


def _count(spending: Spending, usage: Usage) -> bool:
    """Add the tokens and cost of an answer; return `True` if its price is known."""
    spending.input_tokens += usage.input_tokens or 0
    spending.output_tokens += usage.output_tokens or 0
    dollars = price_usage(usage)
    spending.dollars += dollars or 0.0
    return dollars is not None
