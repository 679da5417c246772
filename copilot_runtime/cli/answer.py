"""Read an answer of `generateCopilotResponse`, patch by patch, and say what to show."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from copilot_runtime.errors import NetworkError


class Piece(NamedTuple):
    """A piece of the answer's text."""

    text: str


class Call(NamedTuple):
    """A complete call of an action."""

    name: str
    arguments: str


class Result(NamedTuple):
    """What came of a call."""

    name: str
    text: str


Line = Piece | Call | Result | str
"""What to show; a plain text stands on a line of its own."""


class Answer:
    """The messages of one response, as far as they have come."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self._messages: dict[int, dict[str, Any]] = {}
        self._shown: set[int] = set()
        self._ended = False

    @property
    def wants_more(self) -> bool:
        """True when the model waits to hear of results: the answer ended with one."""
        messages = self.messages()
        return bool(messages) and messages[-1]["__typename"] == "ResultMessageOutput"

    def take(self, payload: Mapping[str, Any]) -> Iterator[Line]:
        """Take the next payload and yield what it adds."""
        self._ended = self._ended or payload.get("hasNext") is False
        if errors := payload.get("errors"):
            self.failure = "\n".join(map(_sentence, errors))
            return
        match payload.get("data"):
            case {"generateCopilotResponse": {**response}}:
                for index, message in enumerate(response.get("messages") or ()):
                    yield from self._begin(index, message)
                yield from self._fill(["generateCopilotResponse"], response)
            case _:
                pass
        for patch in payload.get("incremental") or ():
            if errors := patch.get("errors"):
                self.failure = "\n".join(map(_sentence, errors))
            elif "items" in patch:
                yield from self._add(patch["path"], patch["items"] or ())
            else:
                yield from self._fill(patch["path"], patch.get("data") or {})

    def finish(self) -> None:
        """Check that the response came to its end. Raises `NetworkError`."""
        if not self._ended and self.failure is None:
            raise NetworkError("The runtime broke off in the middle of the answer.")

    def messages(self) -> Sequence[Mapping[str, Any]]:
        """Return the messages that a next request may hold: texts, and calls with a result."""
        messages = [message for _, message in sorted(self._messages.items())]
        answered = {message.get("actionExecutionId") for message in messages}
        return [message for message in messages if _is_kept(message, answered)]

    def _begin(self, index: int, message: Mapping[str, Any]) -> Iterator[Line]:
        started = self._messages[index] = {**message}
        match started["__typename"]:
            case "TextMessageOutput":
                started["content"] = "".join(message.get("content") or ())
                if started["content"]:
                    yield Piece(started["content"])
            case "ActionExecutionMessageOutput":
                started["arguments"] = "".join(message.get("arguments") or ())
            case "ResultMessageOutput":
                yield from self._call_of(started["actionExecutionId"])
                yield Result(started["actionName"], started["result"])
            case "AgentStateMessageOutput":
                yield f"  · {started['agentName']} {started['nodeName']}".rstrip()
            case _:
                pass
        if message.get("status"):
            yield from self._fill(["", "messages", index], message)

    def _add(self, path: Sequence[Any], items: Sequence[Any]) -> Iterator[Line]:
        match path:
            case [_, "messages", int(first)]:
                for index, message in enumerate(items, first):
                    yield from self._begin(index, message)
            case [_, "messages", int(index), "content", _]:
                self._messages[index]["content"] += (text := "".join(items))
                yield Piece(text)
            case [_, "messages", int(index), "arguments", _]:
                self._messages[index]["arguments"] += "".join(items)
            case [_, "metaEvents", *_]:
                for event in items:
                    yield f"  ? {event.get('value') or event.get('name')}"
            case _:
                pass

    def _fill(self, path: Sequence[Any], data: Mapping[str, Any]) -> Iterator[Line]:
        status = data.get("status") or {}
        match path:
            case [_, "messages", int(index)]:
                message = self._messages[index]
                if message["__typename"] == "ActionExecutionMessageOutput":
                    yield from self._call_of(message["id"])
                if status.get("reason"):
                    message["failed"] = True
            case [_] if status.get("reason") or status.get("code") == "Failed":
                self.failure = _failure(status)
            case _:
                pass

    def _call_of(self, call_id: str) -> Iterator[Line]:
        """Yield a call once; its result may come before its own end."""
        for index, message in self._messages.items():
            if message["id"] == call_id and index not in self._shown and "arguments" in message:
                self._shown.add(index)
                yield Call(message["name"], message["arguments"])


def _is_kept(message: Mapping[str, Any], answered: set[Any]) -> bool:
    match message["__typename"]:
        case "TextMessageOutput":
            return bool(message["content"])
        case "ActionExecutionMessageOutput":
            return message["id"] in answered
        case name:
            return name == "ResultMessageOutput"


def _sentence(error: Mapping[str, Any]) -> str:
    code = (error.get("extensions") or {}).get("code")
    return f"{error.get('message')}{f' [{code}]' if code else ''}"


def _failure(status: Mapping[str, Any]) -> str:
    details = status.get("details") or {}
    code = (details.get("originalError") or {}).get("code") or status.get("reason")
    text = details.get("guardrailsReason") or details.get("description") or "The run failed."
    return f"{text} [{code}]"
