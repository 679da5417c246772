"""Finds passages for the last question of a conversation."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from copilot_runtime.interfaces import Passage, RunInput
from copilot_runtime.knowledge.policies import build_actor
from copilot_runtime.messages import Message, TextMessage

if TYPE_CHECKING:
    from copilot_runtime.knowledge.knowledge import Knowledge

_LONGEST_QUERY = 2000
"""Characters: what a person pastes below a question says little about what is asked."""

_LEAST_SHARE = 0.5
"""Of the best score: what is less like the question than this only distracts from the best."""

_FEW_WORDS = 6
_REFERENCE = re.compile(
    r"\b(?:it|its|they|them|their|he|him|his|she|her|this|that|these|those|there|then|one|ones|"
    r"same|former|latter|else|more|also)\b",
    re.IGNORECASE,
)
"""Words of a question that mean something said before."""


class KnowledgeRetriever:
    """Searches as the caller of the run, for `limit` passages of `max_tokens` in all.

    Each is as like the question as `threshold`, at least.
    """

    def __init__(
        self,
        knowledge: "Knowledge",
        *,
        limit: int = 5,
        max_tokens: int = 2000,
        threshold: float | None = None,
    ) -> None:
        self._knowledge = knowledge
        self._limit = limit
        self._max_tokens = max_tokens
        self._threshold = threshold

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return what the caller may read and fits the last question. Raises what a search does."""
        queries = find_queries(run.messages)
        if not queries:
            return ()
        found = await self._knowledge.search(
            queries,
            actor=build_actor(run.user, run.thread_id, agent=run.agent_name),
            limit=self._limit,
            max_tokens=self._max_tokens,
            threshold=self._threshold,
        )
        least = _LEAST_SHARE * max((passage.score or 0 for passage in found), default=0)
        return [passage for passage in found if (passage.score or 0) >= least]


def find_queries(messages: Sequence[Message]) -> list[str]:
    """Return what to search for: the last question, and with the one before if it refers to it."""
    questions = [
        message.content.strip()[:_LONGEST_QUERY]
        for message in messages
        if isinstance(message, TextMessage) and message.role == "user" and message.content.strip()
    ]
    if not questions:
        return []
    last, before = questions[-1], questions[-2:-1]
    if not before or not _refers_back(last):
        return [last]
    return [last, f"{before[0]}\n{last}"]


def _refers_back(question: str) -> bool:
    return len(question.split()) <= _FEW_WORDS or _REFERENCE.search(question) is not None
