"""The base class of readers of streamed responses with JSON payloads."""

from abc import ABC, abstractmethod

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.errors import Service
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.telemetry.genai import describe_response
from copilot_runtime.telemetry.span import Span

_DONE = b"[DONE]"
"""The last payload of OpenAI, and of many gateways whatever provider is behind them."""

_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class JSONReader(ABC):
    """Translates the payloads of one response into events, and tracks whether it is complete.

    A subclass implements `_take` and `end`.
    """

    def __init__(self, request: ChatRequest, service: Service) -> None:
        self.finished = False
        """True when the provider has sent the reason why the model stopped."""
        self.done = False
        """True when nothing follows."""
        self.failure: CopilotError | None = None
        """The error that the provider sent; it is raised after the events that came before it."""
        self._service = service
        self._assembly = Assembly(request)
        self._model = service.model
        self._stop: str | None = None
        """The stop reason of the model, as OpenAI calls it if OpenAI has it."""

    def read(self, payloads: list[bytes]) -> list[Event]:
        """Return the events of a block of payloads."""
        events = self._assembly.events = []
        try:
            for payload in payloads:
                if payload.strip() == _DONE:
                    self.done = True
                    break
                try:
                    self._take(loads(payload))
                except _MALFORMED as error:
                    raise self._service.payload_error(payload) from error
        except CopilotError as error:
            self.failure = error
        return events

    def feed(self, data: JsonObject) -> list[Event]:
        """Return the events of one payload that an SDK has decoded, or raise its error."""
        events = self._assembly.events = []
        self._take(data)
        return events

    def describe(self, span: Span) -> None:
        """Add the id, model and stop reason of the response to the span of the request."""
        response_id = self._assembly.response_id
        if response_id or self._stop:
            describe_response(span, response_id, self._model, self._stop)

    @abstractmethod
    def end(self) -> list[Event]:
        """Return the events that follow a complete response, such as its `Usage`."""

    @abstractmethod
    def _take(self, data: JsonObject) -> None:
        """Add the events of one payload to the assembly.

        Raises the error that the payload contains. An exception caused by a missing field or a
        wrong type marks the payload as malformed.
        """
