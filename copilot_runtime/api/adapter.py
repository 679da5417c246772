"""The interfaces of models: chat, embedding and speech; and the requests to a chat model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from copilot_runtime.api.action import Action
from copilot_runtime.api.budget import Budget
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import Message
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import Parameters, RunInput
from copilot_runtime.base.dataclass_copy import make_builder
from copilot_runtime.telemetry.span import NO_SPAN, Span

if TYPE_CHECKING:
    from decimal import Decimal

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)  # no slots, for `copy_with`
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
    has_knowledge: bool = False
    """Whether passages were searched for, though there may be none."""
    span: Span = field(default=NO_SPAN, repr=False, compare=False)
    """The span of the request, to which an adapter may add attributes."""
    budget: Budget | None = field(default=None, repr=False, compare=False)
    """The budget that counts the request; an adapter that sends it again calls
    `repeat_request`."""


new_chat_request = make_builder(ChatRequest)
"""Builds a request in a fraction of the time, for agents."""


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
    introduction: str = ""
    """A note for developers, shown when the server starts and on the page at `/`."""

    def stream(self, request: ChatRequest) -> Events:
        """Send one request to the model and yield its answer.

        An async generator. It yields messages, calls, reasoning and `Usage`, interleaved in any
        way, each as a `…Start`, its deltas and its `…End`. A call in which the answer was cut off
        gets no `…End`: it will not run, and the model is told. It does not yield results of calls,
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

    def suggest(self, actions: Sequence[Action]) -> Sequence[str]:
        """Return questions for the page at `/`, of a chat with these actions of the server."""
        del actions
        return self.suggestions

    def find_failing_checks(self) -> Sequence[str]:
        """Return the names of the checks that fail at the moment, for `/health/ready`.

        A name may be followed by a colon and a reason, which only servers without users show.
        """
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


class Embedder(ABC):
    """An embedding model."""

    version: str = ""
    """Version of its code; vectors of another one are made again. For models on this machine."""
    max_tokens: int = 0
    """Maximum input tokens; longer texts are truncated. 0 if unknown."""
    tokens: int = 0
    """Number of embedded tokens so far, as counted by the provider; 0 if it does not count."""
    query_tokens: int = 0
    """Number of embedded query tokens, included in `tokens`."""

    least_score: float = 0.0
    """Minimum similarity of a query and a text that may be about it, from 0 to 1."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The id of provider, model and dimensions; vectors of two models are never compared."""

    @abstractmethod
    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one unit vector per text, as rows.

        Raises `CopilotError` if the provider fails after its retries.
        """

    async def embed_queries(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return the vectors of queries, which some models embed differently from texts."""
        return await self.embed(texts)

    def relates(self, query: str, text: str) -> bool:  # noqa: ARG002
        """Return whether a text near a query may be about it.

        `False` where vectors of unrelated texts are near, too, and the texts tell them apart.
        """
        return True

    async def check_key(self) -> None:  # noqa: B027
        """Raise `ConfigurationFailed` if a required API key is missing."""

    async def check_budget(self) -> None:  # noqa: B027
        """Raise the error of a limit of the caller that would refuse a request, if any counts."""

    async def price(self, tokens: int) -> "Decimal | None":  # noqa: ARG002
        """Return the price of `tokens` tokens in US dollars, or None if unknown."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Close the connections."""


class Transcriber(Protocol):
    """A speech-to-text service.

    A transcriber may also have `async aclose()`, which is awaited at the server's shutdown.
    """

    async def transcribe(self, audio: bytes, filename: str, mime_type: str) -> str:
        """Return the text of a recording. Raises `AudioRefused`, or another `CopilotError`."""
        ...
