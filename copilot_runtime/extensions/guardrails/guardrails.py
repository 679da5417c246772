"""Stages that refuse requests: topic rules, word lists, and an HTTP validator.

Rules for user input refuse before the agent starts. They check all of the user's messages, the
page's context and the results of earlier calls, because the model reads all of them. A word list
for output stops the answer before the word is sent. Both check text only, not images or arguments.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.api.agent import StageFunction
from copilot_runtime.api.events import (
    Events,
    ReasoningContent,
    ReasoningEnd,
    TextMessageContent,
    TextMessageEnd,
)
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import LimitExceeded, Refused
from copilot_runtime.extensions.guardrails.phrases import PhraseFound, Phrases, Sieve
from copilot_runtime.extensions.guardrails.validator import HttpGuardrail
from copilot_runtime.extensions.settings import Settings

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpGuardrail", "from_settings", "topics", "words"]

MESSAGE = "I cannot help with that topic."

logger = logging.getLogger(__name__)

_MOST_CLIENT_RULES = 1000
_LONG = 10_000
"""Characters above which a text is searched in a thread, because it takes milliseconds."""
_TOO_LONG = 1_000_000
_TEXT_COST = 100
"""Cost of each text beside its characters, since a word may be split over many texts."""


def from_settings(
    settings: Settings,
    http_client: "httpx.AsyncClient | None" = None,
    *,
    honours_client: bool = False,
) -> Sequence[StageFunction]:
    """Return the guardrails that the settings configure. The last, and cheapest, runs first.

    `http_client` is used for requests to `cloud_base_url`. Unless it is set, or a guardrail of
    the program `honours_client`, the topics that a page denies are looked for as words.
    """
    rules = settings.guardrails
    stages: list[StageFunction] = []
    if settings.cloud_base_url:
        stages.append(HttpGuardrail(settings.cloud_base_url, http_client=http_client))
    elif not honours_client:
        stages.append(PageTopics(rules.message))
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
    """Refuse a user's input that names a denied topic, or a question that names no allowed topic.

    The question is the user's last message. Denied topics are searched in all messages of the user
    and in the context, also in obfuscated spellings. With `honour_client`, the topics in the
    client's request count as well.
    """
    allowed, denied = Phrases(allow), Phrases(deny)

    def stage(events: Events, run: RunInput) -> Events:
        texts = _UserTexts.from_run(run)
        rules = [(allowed, denied)]
        if honour_client and run.rules is not None:
            rules.append(
                (_parse_client_rules(run.rules.allow), _parse_client_rules(run.rules.deny))
            )

        def is_permitted() -> bool:
            return all(texts.permit(allow, deny) for allow, deny in rules)

        return _check_texts(events, message, is_permitted, texts)

    vars(stage)["honours_client"] = honour_client
    return stage


def words(
    forbidden: Sequence[str], *, message: str = MESSAGE, output: bool = False
) -> StageFunction:
    """Refuse a user's input that contains one of the words; with `output`, stop such an answer.

    The words are searched in all messages of the user and in the context, also in obfuscated
    spellings. In an answer, text that may be the start of a word is withheld until it is decided.
    """
    phrases = Phrases(forbidden)

    def stage(events: Events, run: RunInput) -> Events:
        texts = _UserTexts.from_run(run)
        if output and phrases:
            events = _filter_answer(events, phrases, message)
        return _check_texts(events, message, lambda: texts.permit(Phrases(()), phrases), texts)

    return stage


class PageTopics:
    """Refuse the topics that a page of CopilotKit v1 denies, where no service judges its rules.

    A word list finds a denied topic, but cannot tell whether a question belongs to an allowed one:
    that is what Copilot Cloud asks a model. So the topics that a page allows are logged once.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._has_warned = False

    def __call__(self, events: Events, run: RunInput) -> Events:
        if run.rules is None:
            return events
        if run.rules.allow and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "A page sent topics to allow in cloud.guardrails, which need a service: they are "
                "not applied. Set cloud_base_url, or guardrails.allow for topics to find by word."
            )
        denied = _parse_client_rules([one for one in run.rules.deny if any(map(str.isalnum, one))])
        if not denied:
            return events
        texts = _UserTexts.from_run(run)
        return _check_texts(events, self._message, lambda: texts.permit(Phrases(()), denied), texts)


@dataclass(frozen=True, slots=True)
class _UserTexts:
    """A user's messages, oldest first, the page's context, and the results of earlier calls."""

    messages: Sequence[str]
    answers: Sequence[str]
    """Answers to interrupts."""
    context: Sequence[str]
    results: str

    @classmethod
    def from_run(cls, run: RunInput) -> "_UserTexts":
        messages = [
            message.content
            for message in run.messages
            if isinstance(message, TextMessage) and message.role == "user"
        ]
        answers = [
            text
            for answer in run.resume
            for text in _find_texts(answer.response if answer.payload is None else answer.payload)
        ]
        context = [text for item in run.context for text in (item.description, item.value)]
        results = [one.result for one in run.messages if isinstance(one, ResultMessage)]
        return cls(messages, answers, context, "\n".join(results))

    @property
    def length(self) -> int:
        """The cost of a search in what was written: characters, plus a constant for each text."""
        texts = (*self.messages, *self.answers, *self.context)
        return sum(map(len, texts)) + _TEXT_COST * len(texts)

    def permit(self, allowed: Phrases, denied: Phrases) -> bool:
        """Return whether no text has a denied phrase and the last message has an allowed one."""
        written = (*self.messages, *self.answers)
        if denied.search(written) or denied.search(["\n".join(self.context)]):
            return False
        if denied and denied.find(
            self.results
        ):  # no one writes them to deceive: as data, they may be long
            return False
        return not allowed or not self.messages or allowed.find(self.messages[-1]) is not None


def _find_texts(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, including the names of members."""
    match value:
        case str():
            yield value
        case dict():
            for part in cast("dict[str, Any]", value).items():
                yield from chain.from_iterable(map(_find_texts, part))
        case list():
            yield from chain.from_iterable(map(_find_texts, cast("list[Any]", value)))
        case _:
            pass


def _parse_client_rules(names: Sequence[str]) -> Phrases:
    if len(names) > _MOST_CLIENT_RULES:
        raise LimitExceeded(f"A request may bring {_MOST_CLIENT_RULES} topics, not {len(names)}.")
    return Phrases(names)


async def _check_texts(
    events: Events, message: str, is_permitted: Callable[[], bool], texts: _UserTexts
) -> Events:
    async with aclosing(events):
        if texts.length > _TOO_LONG:
            raise LimitExceeded(
                f"This conversation is too long: {_TOO_LONG} characters of yours can be judged."
            )
        is_short = texts.length + len(texts.results) < _LONG
        fine = is_permitted() if is_short else await asyncio.to_thread(is_permitted)
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
