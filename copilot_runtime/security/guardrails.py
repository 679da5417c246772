"""Stages that refuse: rules on topics, lists of words, and a validator behind HTTP.

A rule on the question refuses before the agent starts. A list of words for the answer stops
it before the word is shown. Both look at text only, never into images, arguments or results.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.config import Settings
from copilot_runtime.errors import LimitExceeded, Refused
from copilot_runtime.events import (
    ReasoningContent,
    ReasoningEnd,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.interfaces import Events, RunInput, Stage
from copilot_runtime.messages import TextMessage
from copilot_runtime.security.phrases import Found, Phrases, Sieve
from copilot_runtime.security.validator import HttpGuardrail

__all__ = ["HttpGuardrail", "from_settings", "topics", "words"]

MESSAGE = "I cannot help with that topic."

_MOST_CLIENT_RULES = 1000


def from_settings(settings: Settings) -> Sequence[Stage]:
    """Return the guardrails that the settings ask for. The last, and cheapest, judges first."""
    rules = settings.guardrails
    stages: list[Stage] = []
    if settings.cloud_base_url:
        stages.append(HttpGuardrail(settings.cloud_base_url))
    if rules.words:
        stages.append(words(rules.words, message=rules.message, output=True))
    if rules.allow or rules.deny:
        stages.append(topics(allow=rules.allow, deny=rules.deny, message=rules.message))
    return stages


def topics(
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    *,
    message: str = MESSAGE,
    honour_client: bool = False,
) -> Stage:
    """Refuse a question that names a denied topic, or none of the allowed ones.

    The question is the last text of the user. With `honour_client`, the topics which the client
    sent for itself count as well.
    """
    allowed, denied = Phrases(allow), Phrases(deny)

    def stage(events: Events, run: RunInput) -> Events:
        question = _question(run)
        if question is None:
            return events
        ours = _permits(allowed, denied, question)
        if ours and honour_client and run.rules is not None:
            ours = _permits(_clients(run.rules.allow), _clients(run.rules.deny), question)
        return events if ours else _refuse(events, message)

    return stage


def words(forbidden: Sequence[str], *, message: str = MESSAGE, output: bool = False) -> Stage:
    """Refuse a question that contains one of the words; with `output`, stop an answer that does.

    What may be the beginning of a word is held back until it is not.
    """
    phrases = Phrases(forbidden)

    def stage(events: Events, run: RunInput) -> Events:
        question = _question(run)
        if question is not None and phrases.find(question) is not None:
            return _refuse(events, message)
        return _sifted(events, phrases, message) if output and phrases else events

    return stage


def _question(run: RunInput) -> str | None:
    texts = (
        message.content
        for message in reversed(run.messages)
        if isinstance(message, TextMessage) and message.role == "user"
    )
    return next(texts, None)


def _permits(allowed: Phrases, denied: Phrases, question: str) -> bool:
    if denied.find(question) is not None:
        return False
    return not allowed or allowed.find(question) is not None


def _clients(names: Sequence[str]) -> Phrases:
    if len(names) > _MOST_CLIENT_RULES:
        raise LimitExceeded(f"A request may bring {_MOST_CLIENT_RULES} topics, not {len(names)}.")
    return Phrases(names)


async def _refuse(events: Events, message: str) -> Events:
    await events.aclose()
    raise Refused(message)
    yield  # makes this a generator, so that the run fails when it begins and not before


async def _sifted(events: Events, phrases: Phrases, message: str) -> Events:
    sieves: dict[str, tuple[Sieve, TextMessageContent | ReasoningContent]] = {}
    async with aclosing(events):
        try:
            async for event in events:
                match event:
                    case TextMessageContent() | ReasoningContent():
                        sieve, _ = sieves.get(event.message_id) or (Sieve(phrases), event)
                        sieves[event.message_id] = sieve, event
                        if shown := sieve.push(event.content):
                            yield replace(event, content=shown)
                    case TextMessageEnd() | ReasoningEnd():
                        if event.message_id in sieves:
                            sieve, last = sieves.pop(event.message_id)
                            if shown := sieve.end():
                                yield replace(last, content=shown)
                        yield event
                    case _:
                        yield event
            for sieve, last in sieves.values():
                if shown := sieve.end():
                    yield replace(last, content=shown)
        except Found as found:
            raise Refused(message, hint=f"The answer contained {found.phrase!r}.") from None
