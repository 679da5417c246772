"""Retrieve passages for the last question of a conversation, and search earlier messages."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import zip_longest
from math import log
from typing import TYPE_CHECKING

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.folding import fold_text
from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.passages import cut_passages
from copilot_runtime.extensions.knowledge.policies import build_actor
from copilot_runtime.extensions.knowledge.resources import Resource
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge


LONGEST_QUERY = 2000
"""Maximum number of characters of a query; text pasted below a question is rarely relevant."""

_POOL = 4
"""Number of candidates for each returned passage."""

_WORDS_SHARE = 0.3
"""Bonus for a passage with all words of the question, added to a similarity of at most 1."""

_LEAST_SHARE = 0.6
"""Minimum score as a share of the best one; worse passages are dropped."""

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?:ing|ed|es|s)$")

_FEW_WORDS = 6
_REFERENCE = re.compile(
    r"\b(?:it|its|they|them|their|he|him|his|she|her|this|that|these|those|there|then|one|ones|"
    r"same|former|latter|else|more|also)\b",
    re.IGNORECASE,
)
"""Words that refer to an earlier question."""

_PART = re.compile(
    r"(?<=\?)\s+|,?\s+and\s+(?=(?:how|what|when|where|which|who|why)\b)", re.IGNORECASE
)
"""Separates the questions of a message, each of which may be about something else."""


@dataclass(eq=False)
class KnowledgeRetriever:
    """Retrieves up to `limit` passages of at most `max_tokens` in total for the caller of a run.

    Each has a similarity of at least `threshold`.
    """

    source = "knowledge"
    """The name of the source in spans."""

    knowledge: "Knowledge"
    _: KW_ONLY
    limit: int = 5
    max_tokens: int = 2000
    threshold: float | None = None

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return readable passages for the last question. Raises like `search`."""
        queries = [run.query[:LONGEST_QUERY]] if run.query else find_queries(run.messages)
        if not queries:
            return ()
        return await search_passages(
            self.knowledge,
            queries,
            build_actor(run.user, run.thread_id, agent=run.agent_name),
            limit=self.limit,
            max_tokens=self.max_tokens,
            threshold=self.threshold,
        )


async def search_passages(
    knowledge: "Knowledge",
    queries: Sequence[str],
    actor: Actor,
    *,
    limit: int,
    max_tokens: int,
    threshold: float | None = None,
) -> list[Passage]:
    """Return the best passages for several queries, without duplicates, within `max_tokens`."""

    async def search(query: str) -> list[Passage]:
        found = await knowledge.search(query, actor=actor, limit=_POOL * limit, threshold=threshold)
        return rank_passages([query], found)

    rankings = await asyncio.gather(*map(search, queries))
    ranked = drop_repetitions(merge_rankings(rankings))
    return cut_passages(ranked[:limit], max_tokens)


def rank_passages(queries: Sequence[str], passages: Sequence[Passage]) -> list[Passage]:
    """Return passages sorted by similarity and by shared words with the queries.

    Vectors of long texts are alike in what the texts are about, and blur names and numbers. So a
    word counts the more, the fewer passages contain it. Passages far worse than the best are
    dropped.
    """
    words = _read_words(" ".join(queries))
    texts = [_read_words(f"{passage.title} {passage.text}") for passage in passages]
    counts = Counter(word for text in texts for word in words & text)
    weights = {word: log(1 + len(texts) / count) for word, count in counts.items()}
    most = sum(weights.values()) or 1.0
    scores = [
        (passage.score or 0) + _WORDS_SHARE * sum(weights[word] for word in words & text) / most
        for passage, text in zip(passages, texts, strict=True)
    ]
    least = _LEAST_SHARE * max(scores, default=0)
    ranked = sorted(zip(scores, passages, strict=True), key=lambda row: -row[0])
    return [passage for score, passage in ranked if score >= least]


def merge_rankings(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Interleave rankings: the best of each, then the second of each, without duplicates.

    The best passage with the highest score comes first. Passages found with the previous question
    often have higher scores than the answer to the last question alone, and must not displace it.
    """
    ordered = sorted(filter(None, rankings), key=lambda ranking: -(ranking[0].score or 0))
    merged: dict[str, Passage] = {}
    for row in zip_longest(*ordered):
        for passage in filter(None, row):
            merged.setdefault(passage.id, passage)
    return [*merged.values()]


def drop_repetitions(passages: Sequence[Passage]) -> list[Passage]:
    """Return passages without those whose text is contained in another one."""
    return [
        passage
        for number, passage in enumerate(passages)
        if not any(
            passage.text in other.text and (len(other.text) > len(passage.text) or before < number)
            for before, other in enumerate(passages)
            if before != number
        )
    ]


def find_queries(messages: Sequence[Message]) -> list[str]:
    """Return the queries: the last question, also combined with the one that it refers to.

    Each of several questions in it is a query as well: they may be about different things.
    """
    questions = [
        message.content.strip()[:LONGEST_QUERY]
        for message in messages
        if isinstance(message, TextMessage) and message.role == "user" and message.content.strip()
    ]
    if not questions:
        return []
    last, before = questions[-1], questions[-2:-1]
    if before and _refers_back(last):
        return [last, f"{before[0]}\n{last}"]
    parts = [last] if _REFERENCE.search(last) else _PART.split(last, maxsplit=2)
    are_questions = parts[-1].endswith("?") and all(len(part.split()) > 2 for part in parts)
    return [last, *parts] if len(parts) > 1 and are_questions else [last]


def _read_words(text: str) -> set[str]:
    """Return the words of a text without the endings that plurals and verbs have in English."""
    words = (word for word in _WORD.findall(fold_text(text)) if len(word) > 1)
    return {_ENDING.sub("", word) if len(word) > 4 else word for word in words}


def _refers_back(question: str) -> bool:
    return len(question.split()) <= _FEW_WORDS or _REFERENCE.search(question) is not None


_MOST_MESSAGES = 2000
"""Maximum number of messages that are searched, the latest ones of a thread."""

_LONGEST = 4000
"""Maximum number of characters of a message that are compared."""

_LEAST_SCORE = 0.15


async def recall_messages(
    threads: ThreadStore,
    key: ThreadKey,
    texts: Sequence[str],
    *,
    embedder: Embedder,
    run_id: str = "",
    limit: int = 10,
) -> list[Passage]:
    """Return the messages of a thread that are most similar to any of the texts.

    They are read from the store of threads: no message is stored twice. The run of `run_id`, and
    one that goes on, is left out: the question that is answered now would be the best match.
    """
    runs = [it for it in await threads.runs(key) if it.ended and it.run_id != run_id]
    passages = await asyncio.to_thread(_list_passages, runs)
    if not passages:
        return []
    vectors = await embedder.embed([passage.text[:_LONGEST] for passage in passages])
    queries = await embedder.embed_queries(texts)
    scores = (vectors @ queries.T).max(axis=1)
    ranked = sorted(zip(scores.tolist(), passages, strict=True), key=lambda row: -row[0])
    return [
        replace(passage, score=score) for score, passage in ranked[:limit] if score >= _LEAST_SCORE
    ]


def list_messages(runs: Sequence[StoredRun], conversation: str) -> Sequence[Resource]:
    """Return the texts and the action results of a thread as resources below its conversation."""
    return [
        Resource(
            Identifier("common.Message", message.id, conversation),
            text,
            role=message.role if isinstance(message, TextMessage) else "tool",
        )
        for message in _fold(runs)
        if (text := _read(message).text).strip()
    ]


def _list_passages(runs: Sequence[StoredRun]) -> list[Passage]:
    """Return the texts and the action results of a thread as passages."""
    return [passage for message in _fold(runs) if (passage := _read(message)).text.strip()]


def _fold(runs: Sequence[StoredRun]) -> Sequence[Message]:
    return fold_thread(run.events for run in runs)[-_MOST_MESSAGES:]


def _read(message: Message) -> Passage:
    match message:
        case TextMessage(role="user" | "assistant" as role):
            return Passage(id=message.id, title=role, text=message.content)
        case ResultMessage():
            return Passage(id=message.id, title=f"result of {message.name}", text=message.result)
        case _:
            return Passage(id=message.id, text="")
