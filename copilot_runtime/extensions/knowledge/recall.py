"""Search earlier messages of a thread.

The threads are read from their store: no message is stored twice, and none is sent to a provider
of embeddings.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.threads.store import StoredRun, ThreadKey, ThreadStore

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

    The run of `run_id`, and one that goes on, is left out: the question that is answered now would
    be the best match.
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


def _list_passages(runs: Sequence[StoredRun]) -> list[Passage]:
    """Return the texts and the action results of a thread as passages."""
    messages = fold_thread(run.events for run in runs)[-_MOST_MESSAGES:]
    return [passage for message in messages if (passage := _read(message)).text.strip()]


def _read(message: Message) -> Passage:
    match message:
        case TextMessage(role="user" | "assistant" as role):
            return Passage(id=message.id, title=role, text=message.content)
        case ResultMessage():
            return Passage(id=message.id, title=f"result of {message.name}", text=message.result)
        case _:
            return Passage(id=message.id, text="")
