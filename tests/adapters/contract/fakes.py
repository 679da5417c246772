"""Servers that speak each provider's own bytes, and what a test tells them in common words.

A test says `fake.plays(Say("Hi"), Stop())`; the fake writes what its provider would have sent.
Afterwards `fake.asked` holds what it was asked, in words that are the same for all of them.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import pytest

from copilot_runtime.adapters.capabilities import UNSUPPORTED
from copilot_runtime.api import Adapter
from tests.adapters import provider as http
from tests.adapters.contract.tool_faults import find_fault
from tests.adapters.provider import Provider, Request, serving

FAKES = {
    "anthropic": "tests.adapters.contract.anthropic_fake:AnthropicFake",
    "bedrock": "tests.adapters.contract.bedrock_fake:BedrockFake",
    "google": "tests.adapters.contract.google_fake:GoogleFake",
    "langchain": "tests.adapters.contract.langchain_fake:LangChainFake",
    "openai": "tests.adapters.contract.openai_fake:OpenAIFake",
    "openai_assistants": "tests.adapters.contract.openai_assistants_fake:OpenAIAssistantsFake",
    "openai_responses": "tests.adapters.contract.openai_fake:OpenAIResponsesFake",
}
"""The name of an adapter's line in `capabilities.UNSUPPORTED` → its fake."""

SERVICES = {
    name: f"tests.adapters.contract.openai_fake:{name}"
    for name in (
        *("azure", "deepseek", "github", "groq", "lmstudio", "mistral", "ollama"),
        *("openrouter", "together", "unify", "vllm"),
    )
}
"""The same for presets of `OpenAIAdapter`, which the whole suite would find alike."""

KEY = "sk-very-secret-key"
"""The key that adapters are given; it must be in no error."""

MODEL = "a-model"
"""The model that adapters are given."""


@dataclass(frozen=True, slots=True)
class Think:
    """A piece of a thought. `signature` ends it, where the provider signs thoughts."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Say:
    """A piece of text; an empty one is written as the provider writes empty deltas."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A piece of a refusal, in the model's own words."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; several may be open at a time."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArgs:
    """A piece of a call's arguments."""

    id: str
    piece: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is whole."""

    id: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The counts of this answer. `input` has the cached, `output` those of reasoning.

    It may stand anywhere: the fake writes it where its provider does.
    """

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """The model stops: `stop`, `length`, `tool_calls`, `content_filter`, `refusal`, `pause`."""

    reason: str = "stop"


@dataclass(frozen=True, slots=True)
class Fails:
    """The answer is a refusal with this status; alone in its script.

    `kind` is empty for what goes with the status, else `context_length` or `content_filter`.
    """

    status: int
    kind: Literal["", "context_length", "content_filter"] = ""
    retry_after: float | None = None
    message: str = "No, says the fake."


@dataclass(frozen=True, slots=True)
class ErrorInStream:
    """An error in the middle of the answer; nothing follows."""

    kind: Literal["overloaded", "rate_limit", "server_error"] = "server_error"
    message: str = "No, says the fake."


@dataclass(frozen=True, slots=True)
class Ping:
    """A sign of life that means nothing."""


@dataclass(frozen=True, slots=True)
class Breaks:
    """The connection is lost."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing more is said until the client hangs up."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Nothing is said until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Split:
    """The next frame arrives in two halves, or byte by byte."""

    bytewise: bool = False


@dataclass(frozen=True, slots=True)
class NoDone:
    """The marker that a provider sends after the last event is missing. Stands before `Stop`."""


Control = Breaks | Silence | Waits | Split
"""Steps that are the same for all who speak HTTP: `HttpFake` does them."""

Step = (
    Think
    | Say
    | Refuse
    | CallStart
    | CallArgs
    | CallEnd
    | Tokens
    | Stop
    | Fails
    | ErrorInStream
    | Ping
    | NoDone
    | Control
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One thing said in the conversation that a server received: a text, a call or a result...

    `role` is `instructions` for system and developer, `user`, `assistant` or `tool`. Providers
    that put several things in one message are told apart: each is one `Heard`, in its order.
    """

    role: str
    text: str = ""
    image: str = ""
    """Base64 text, or an address."""
    document: str = ""
    call: tuple[str, str, Any] | None = None
    """Id, name and decoded arguments."""
    result_of: str = ""
    """The id of the call that `text` is the result of."""
    thought: str = ""
    """The signature of a thought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    description: str
    parameters: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a server received. `parameters` have the names of `interfaces.Parameters`."""

    model: str
    messages: Sequence[Heard]
    tools: Sequence[Tool] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Those that were sent. `tool_choice` is `function` with `tool_choice_name` beside it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


class Fake(Protocol):
    """A provider on loopback. Enter it, and leave it: `async with`."""

    name: str
    asked: list[Asked]

    def adapter(self, **options: Any) -> Adapter:
        """Return an adapter that asks this fake, with `KEY` and `MODEL` unless told otherwise."""
        ...

    def plays(self, *steps: Step) -> None:
        """Add the answer to one more request; the last one counts for all that follow."""
        ...

    async def until_closed(self) -> None:
        """Return once no connection is open."""
        ...

    async def until_asked(self, count: int) -> None:
        """Return once that many requests have arrived."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class HttpFake(ABC):
    """What all fakes have in common that speak HTTP: a server, and the odd moments."""

    name: str
    content_type = b"text/event-stream"

    def __init__(self) -> None:
        self.provider = Provider()
        self._scripts: list[Sequence[Step]] = []
        self._first: list[Sequence[Step]] | None = None
        self._adapters: list[Any] = []
        self._stack = AsyncExitStack()

    def adapter(self, **options: Any) -> Adapter:
        """Return an adapter that asks this fake; it is closed with it."""
        made = self.make({"model": MODEL, **options})
        self._adapters.append(made)
        return made

    def plays(self, *steps: Step) -> None:
        self._scripts.append(steps)
        self.provider.answer(*(self._script(steps) for steps in self._scripts))

    def forget(self) -> None:
        """Be as before the first case of a test, for the next one."""
        if self._first is None:
            self._first = self._scripts
        self._scripts = list(self._first)
        self.provider.forget()

    @property
    def asked(self) -> list[Asked]:
        return [self.understood(request) for request in self.provider.requests]

    async def until_closed(self) -> None:
        await self.provider.until_open(0)

    async def until_asked(self, count: int) -> None:
        await self.provider.until_asked(count)

    async def __aenter__(self) -> Self:
        self.provider = await self._stack.enter_async_context(serving())
        self.provider.refuse = self._check_tools
        return self

    async def __aexit__(self, *_: object) -> None:
        for adapter in self._adapters:
            await adapter.aclose()
        await self._stack.aclose()

    @abstractmethod
    def make(self, options: Mapping[str, Any]) -> Any:
        """Return the adapter for `self.provider.url`."""

    @abstractmethod
    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        """Yield the frames of an answer as the provider writes them; `Control` as it is.

        `Fails` is not among the steps. Without a `Stop`, the answer just ends.
        """

    @abstractmethod
    def refusal(self, fails: Fails) -> tuple[Any, Mapping[str, str]]:
        """Return the JSON body of an error, and headers besides `retry-after`."""

    @abstractmethod
    def understood(self, request: Request) -> Asked:
        """Return what was asked, in common words."""

    def _script(self, steps: Sequence[Step]) -> Sequence[http.Step]:
        for step in steps:
            if isinstance(step, Fails):
                return [self._refused(step)]
        return [*self._written(steps)]

    def _written(self, steps: Sequence[Step]) -> Iterator[http.Step]:
        yield http.HEAD.replace(b"text/event-stream", self.content_type)
        split: Split | None = None
        for frame in self.frames(steps):
            match frame:
                case Breaks():
                    yield http.RESET
                    return
                case Silence():
                    yield http.HANG
                    return
                case Waits(event):
                    yield event
                case Split():
                    split = frame
                case _ if split is None:
                    yield http.piece(frame)
                case _:
                    size = 1 if split.bytewise else len(frame) // 2 + 1
                    for at in range(0, len(frame), size):
                        yield http.piece(frame[at : at + size])
                    split = None
        yield http.END

    def _check_tools(self, request: Request) -> Sequence[http.Step] | None:
        if not {"tools", "toolConfig"} & {*(request.body or ())}:
            return None
        fault = find_fault(self.name, self.understood(request).tools)
        return [self._refused(Fails(400, message=fault))] if fault else None

    def _refused(self, fails: Fails) -> bytes:
        body, headers = self.refusal(fails)
        written = {name.replace("-", "_"): value for name, value in headers.items()}
        if fails.retry_after is not None:
            written["retry_after"] = f"{fails.retry_after:g}"
        return http.whole(json.dumps(body).encode(), status=f"{fails.status} No", **written)


def make_fake(name: str) -> Fake:
    """Return the fake of that name; skip the test if the adapter's package is not installed."""
    module, _, attribute = (FAKES | SERVICES)[name].partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs {error.name}")
    return getattr(found, attribute)()


def needs(fake: Fake, *behaviours: str) -> None:
    """Skip the test if the adapter lacks one of these, for the reason the table gives."""
    for behaviour in behaviours:
        if reason := UNSUPPORTED.get(fake.name, {}).get(behaviour):
            pytest.skip(f"{fake.name} lacks {behaviour}: {reason}")


def data(value: Any, *, event: str = "") -> bytes:
    """Return one server-sent event that holds JSON."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()
