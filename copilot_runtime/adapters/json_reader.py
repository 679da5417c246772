"""Translates the JSON payloads of a response into events: the base of the readers of all APIs."""

import re
from abc import ABC, abstractmethod

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.errors import Service, read_stream_error
from copilot_runtime.adapters.invalid_answers import find_empty_answer
from copilot_runtime.adapters.provider_errors import find_error, read_error_message
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event
from copilot_runtime.base.errors import CopilotError, InvalidAnswer
from copilot_runtime.base.jsontext import loads, mark_halves
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.telemetry.genai import describe_response
from copilot_runtime.telemetry.span import Span

_DONE = b"[DONE]"
"""The last payload of OpenAI, and of many gateways whatever provider is behind them."""

_ERROR_WORDS = re.compile(
    rb"error|fail|exceed|time-?d? ?out|limit|unavailable|overload|quota|balance|credit|denied",
    re.IGNORECASE,
)

_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class JSONReader(ABC):
    """Translates the payloads of one response into events, and tracks whether it is complete.

    A subclass implements `_take` and `_conclude`.
    """

    def __init__(self, request: ChatRequest, service: Service) -> None:
        self.finished = False
        """True when the provider has sent the reason why the model stopped."""
        self.done = False
        """True when nothing follows."""
        self.failure: CopilotError | None = None
        """The error that the provider sent; it is raised after the events that came before it."""
        self._request = request
        self._service = service
        self._assembly = Assembly(request, service.origin)
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
                    self._take(loads(payload, mark_halves))
                except _MALFORMED as error:
                    if (failure := self._find_failure(payload)) is not None:
                        raise failure from error
        except CopilotError as error:
            self.failure = error
        return events

    def _find_failure(self, payload: bytes) -> CopilotError | None:
        """Return the error for a payload that cannot be read; `None` for a sign of life.

        Gateways send `: keepalive` or `null` as data, and words in place of an error.
        """
        words = payload.strip()
        if words.startswith(b":") or words.lower() == b"ping":
            return None
        says_error = not words.startswith((b"{", b"<")) and _ERROR_WORDS.search(words)
        if not says_error and (words == b"null" or words.startswith(b'"')):
            return None
        if says_error:
            return read_stream_error(self._service, {"message": read_error_message(words)})
        return self._service.body_error(payload)

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

    def _raise_error(self, data: JsonObject) -> None:
        """Raise the error in a payload, in any of the usual forms, if there is one."""
        if (error := find_error(data)) is not None:
            raise read_stream_error(self._service, error)

    def end(self) -> list[Event]:
        """End the answer; return the remaining events, such as its `Usage`."""
        events = self._assembly.events = []
        self._end_answer()
        after = self._conclude()
        return [*events, *after]

    def find_empty_answer(self) -> InvalidAnswer | None:
        """Return the error for an answer without content, or `None` if it needs none."""
        return find_empty_answer(self._service, self._request, self._stop)

    def _end_answer(self) -> None:
        """End the messages and calls of the answer. Its stop reason, if it has one, is known."""
        self._assembly.end(is_cut=self._stop == "length")

    @abstractmethod
    def _conclude(self) -> list[Event]:
        """Return the events that follow a complete answer, such as its `Usage`."""

    @abstractmethod
    def _take(self, data: JsonObject) -> None:
        """Add the events of one payload to the assembly.

        Raises the error that the payload contains. An exception caused by a missing field or a
        wrong type marks the payload as malformed.
        """
