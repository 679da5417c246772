"""Plays the answers that a file has for a model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.adapter import ChatRequest
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.scenarios.definition import (
    RequestCheck,
    ScriptedAnswer,
    ScriptedCall,
    TextCheck,
)
from copilot_runtime.extensions.scenarios.values import shorten

MODEL = "scripted"
"""The name of a scripted model, where none is said."""


@dataclass(slots=True)
class _Answer:
    """An answer, and how often it was played."""

    content: ScriptedAnswer
    count: int = 0

    @property
    def is_left(self) -> bool:
        return self.count == 0 or self.content.repeats


class ScriptPlayer:
    """Answers requests to models.

    The first answer that is left is taken whose `when` fits the request. Its ids are made of its
    number, so that they are the same in each run.
    """

    def __init__(self) -> None:
        self._answers: list[_Answer] = []
        self._number = 0
        self.complaint = ""
        """Why a request could not be answered."""

    def extend(self, answers: Sequence[ScriptedAnswer]) -> None:
        """Add answers, behind those that are there."""
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
        """Return what answers say that no request has asked for."""
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
    """Return a text in the pieces in which a model would stream it."""
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
