"""Adapters to model providers, and the requests they send."""

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
    """A request to a model.

    `agent`, `user` and `extensions` are those of the `RunInput`. `message_id` is the id for the
    answer; if empty, the adapter uses the provider's id, which some providers reuse.
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
    """The passages retrieved for the question; the first message also has them, as text."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the request, to which an adapter may add attributes."""


class ModelEndpoint(NamedTuple):
    """The model and service that answer a request, for telemetry."""

    provider: str = ""
    """The adapter's name in `ADAPTERS`, or another name of the provider."""
    model: str = ""
    url: str = ""
    """The URL of the service; empty if there is none."""
    in_process: bool = False
    """Whether the model runs in this process."""


class SupportsStream(Protocol):
    """The minimum that is accepted in place of an `Adapter`."""

    def stream(self, request: ChatRequest) -> Events: ...


class Adapter:
    """One LLM provider. A class with `stream` alone need not inherit from it."""

    suggestions: Sequence[str] = ()
    """Suggested questions on the page at `/`."""

    def stream(self, request: ChatRequest) -> Events:
        """Send one request to the model and yield its answer.

        An async generator. It yields messages, calls, reasoning and `Usage`, interleaved in any
        way, each as a `…Start`, its deltas and its `…End`. It does not yield results of calls,
        nor `RunStarted`, `RunFinished` or `RunFailed`, which the runtime adds.

        Raise errors: a `CopilotError` reaches the client with its code and message, any other
        exception is logged and reported as "The run failed". `NetworkError` means that a retry
        may succeed, and makes a `FallbackAdapter` try the next adapter.

        When the run is stopped, the task is cancelled and the generator is closed: let
        `asyncio.CancelledError` and `GeneratorExit` pass, and close the connection in `finally`.
        One instance serves all runs concurrently, so it must not store the state of a run.
        """
        raise NotImplementedError

    def check(self, run: RunInput) -> None:
        """Raise a `CopilotError` for a run that cannot succeed, before it starts."""

    async def check_key(self) -> None:
        """Raise `ConfigurationFailed` if a required API key is missing; logged at startup."""

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return the model and service for a request. Must not raise."""
        return ModelEndpoint(model=request.parameters.model or "")

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of the checks that fail at the moment, for `/health/ready`."""
        return ()

    async def aclose(self) -> None:
        """Release the resources of the adapter at shutdown."""


class MessageWindow(Protocol):
    """Trims requests to the context window of a model."""

    def fit(self, request: ChatRequest) -> ChatRequest:
        """Return a request that fits the window; the same object if it already fits.

        May raise a `CopilotError`, which ends the run.
        """
        ...
