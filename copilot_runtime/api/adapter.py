"""One provider of models, and what is sent to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from copilot_runtime.api.action import Action
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import Message
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.telemetry.span import NO_SPAN, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What an adapter sends to its provider.

    `agent`, `user` and `extensions` are those of the `RunInput`. `message_id` is for the answer;
    an empty one is the provider's, which some providers use again in the next answer.
    """

    messages: Sequence[Message]
    instructions: str = ""
    """The operator's part of the first message: no error or log line may repeat it."""
    actions: Sequence[Action] = ()
    parameters: Parameters = Parameters()
    thread_id: str = ""
    run_id: str = ""
    agent: str | None = None
    user: str | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict)
    message_id: str = ""
    passages: Sequence[Passage] = ()
    """What was retrieved for the question; the first message has it as well, as text."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the request: an adapter may add to it what it knows of request and response."""


class ModelEndpoint(NamedTuple):
    """Which model answers a request, for those who watch."""

    provider: str = ""
    """The adapter's name in `ADAPTERS`, or any other word for who runs the model."""
    model: str = ""
    url: str = ""
    """The address of the service, if there is one."""
    in_process: bool = False
    """Whether the model runs in this process."""


class SupportsStream(Protocol):
    """What is accepted for an `Adapter`."""

    def stream(self, request: ChatRequest) -> Events: ...


class Adapter:
    """One LLM provider. A class with `stream` alone need not inherit from it."""

    suggestions: Sequence[str] = ()
    """What the page at `/` offers to ask it."""

    def stream(self, request: ChatRequest) -> Events:
        """Send one request to the model and yield its answer.

        An async generator. It yields messages, calls, reasoning and `Usage`, interleaved as they
        come, but each part as a `…Start`, its pieces and its `…End`. It yields no results of
        calls, and no `RunStarted`, `RunFinished` or `RunFailed`, which the runtime adds.

        An error is raised: a `CopilotError` reaches the client with its code and message,
        anything else is logged and reported as "The run failed". `NetworkError` means that
        another attempt may succeed, and lets a `FallbackAdapter` continue.

        When the run is stopped, the task is cancelled and the generator is closed: let
        `asyncio.CancelledError` and `GeneratorExit` pass, and close the connection in `finally`.
        One object serves all runs at once: it stores nothing of a run.
        """
        raise NotImplementedError

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` for a run that cannot succeed, before it starts."""

    async def check_key(self) -> None:
        """Raise `ConfigurationFailed` if there must be a key and is none: logged at the start."""

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return which model a request is for. Raises nothing."""
        return ModelEndpoint(model=request.parameters.model or "")

    def find_problems(self) -> Sequence[str]:
        """Return what does not work at the moment, a word each: `/health/ready` has them."""
        return ()

    async def aclose(self) -> None:
        """Release what the adapter holds, when the server ends."""


class MessageWindow(Protocol):
    """Decides what of a conversation a model reads."""

    def fit(self, request: ChatRequest) -> ChatRequest:
        """Return a request that is short enough: the same one if it is. It raises no exception but
        a `CopilotError`, which ends the run."""
        ...
