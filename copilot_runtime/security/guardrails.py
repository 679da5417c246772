"""Stages that refuse: rules on topics, lists of words, and a validator behind HTTP.

A rule on the question refuses before the agent starts. A list of words for the answer stops
it before the word is shown. Both look at text only, never into images, arguments or results.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from copilot_runtime.config import Settings
from copilot_runtime.errors import LimitExceeded, Refused
from copilot_runtime.events import (
    ReasoningContent,
    ReasoningEnd,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.interfaces import Events, RunInput, StageFunction
from copilot_runtime.messages import TextMessage
from copilot_runtime.security.phrases import PhraseFound, Phrases, Sieve
from copilot_runtime.security.validator import HttpGuardrail

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpGuardrail", "from_settings", "topics", "words"]

MESSAGE = "I cannot help with that topic."

_MOST_CLIENT_RULES = 1000
_LONG = 50_000


def from_settings(
    settings: Settings, http_client: "httpx.AsyncClient | None" = None
) -> Sequence[StageFunction]:
    """Return the guardrails that the settings ask for. The last, and cheapest, runs first.

    `http_client` is for the service at `cloud_base_url`.
    """
    rules = settings.guardrails
    stages: list[StageFunction] = []
    if settings.cloud_base_url:
        stages.append(HttpGuardrail(settings.cloud_base_url, http_client=http_client))
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
) -> StageFunction:
    """Refuse a question that names a denied topic, or none of the allowed ones.

    The question is the last text of the user. With `honour_client`, the topics which the client
    sent for itself count as well.
    """
    allowed, denied = Phrases(allow), Phrases(deny)

    def stage(events: Events, run: RunInput) -> Events:
        question = _question(run)
        if question is None:
            return events
        rules = [(allowed, denied)]
        if honour_client and run.rules is not None:
            rules.append(
                (_parse_client_rules(run.rules.allow), _parse_client_rules(run.rules.deny))
            )

        def is_permitted() -> bool:
            return all(_is_permitted(allow, deny, question) for allow, deny in rules)

        return _check_question(events, message, is_permitted, len(question))

    return stage


def words(
    forbidden: Sequence[str], *, message: str = MESSAGE, output: bool = False
) -> StageFunction:
    """Refuse a question that contains one of the words; with `output`, stop an answer that does.

    What may be the beginning of a word is held back until it is not.
    """
    phrases = Phrases(forbidden)

    def stage(events: Events, run: RunInput) -> Events:
        question = _question(run) or ""
        if output and phrases:
            events = _filter_answer(events, phrases, message)
        return _check_question(
            events, message, lambda: phrases.find(question) is None, len(question)
        )

    return stage


def _question(run: RunInput) -> str | None:
    texts = (
        message.content
        for message in reversed(run.messages)
        if isinstance(message, TextMessage) and message.role == "user"
    )
    return next(texts, None)


def _is_permitted(allowed: Phrases, denied: Phrases, question: str) -> bool:
    if denied.find(question) is not None:
        return False
    return not allowed or allowed.find(question) is not None


def _parse_client_rules(names: Sequence[str]) -> Phrases:
    if len(names) > _MOST_CLIENT_RULES:
        raise LimitExceeded(f"A request may bring {_MOST_CLIENT_RULES} topics, not {len(names)}.")
    return Phrases(names)


async def _check_question(
    events: Events, message: str, is_permitted: Callable[[], bool], length: int
) -> Events:
    async with aclosing(events):
        # megabytes take seconds to search: in a thread, nobody else waits for them
        fine = is_permitted() if length < _LONG else await asyncio.to_thread(is_permitted)
        if not fine:
            raise Refused(message)
        async for event in events:
            yield event


async def _filter_answer(events: Events, phrases: Phrases, message: str) -> Events:
    sieves: dict[str, tuple[Sieve, TextMessageContent | ReasoningContent]] = {}
    async with aclosing(events):
        try:
            async for event in events:
                match event:
                    case TextMessageContent() | ReasoningContent():
                        sieve, _ = sieves.get(event.message_id) or (Sieve(phrases), event)
                        sieves[event.message_id] = sieve, event
                        if text := sieve.push(event.content):
                            yield replace(event, content=text)
                    case TextMessageEnd() | ReasoningEnd():
                        if event.message_id in sieves:
                            sieve, last = sieves.pop(event.message_id)
                            if text := sieve.end():
                                yield replace(last, content=text)
                        yield event
                    case _:
                        yield event
            for sieve, last in sieves.values():
                if text := sieve.end():
                    yield replace(last, content=text)
        except PhraseFound as match:
            raise Refused(message, hint=f"The answer contained {match.phrase!r}.") from None
