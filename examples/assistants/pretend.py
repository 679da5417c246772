"""A model that knows by rules who answers what, and quotes what was found."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from copilot_runtime import Adapter, Events
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api import ChatRequest
from copilot_runtime.api.events import Event
from copilot_runtime.api.messages import ResultMessage, TextMessage, new_id

TOPICS: Mapping[str, Sequence[str]] = {
    "rules": ("dog", "animal", "pet", "fog", "weather", "wheelchair"),
    "sailings": ("ship", "captain", "sail", "fare", "cost", "engine", "timetable"),
}
"""Words by which it tells who answers a question."""


class PretendModel(Adapter):
    """Plays all three assistants: which one, it reads off the tools and the conversation."""

    async def stream(self, request: ChatRequest) -> Events:
        """Answer, hand over, or ask the others."""
        for event in _answer(request):
            await asyncio.sleep(0)
            yield event


def _answer(request: ChatRequest) -> Sequence[Event]:
    tools = {action.name for action in request.actions}
    question = _find_question(request)
    results = _read_results(request)
    topics = [name for name, words in TOPICS.items() if _mentions(question, words)]
    if "run_sub_agent" not in tools:  # one of those who know
        if "run_handoff" in tools and not topics:
            return _call("run_handoff", {"label": "desk"})
        return _say(_quote(request, question))
    if results:
        return _say(" ".join(results))
    if len(topics) > 1:
        parts = [part for part in re.split(r",? and ", question) if part]
        return [
            event
            for part in parts
            for event in _call("run_sub_agent", {"agent": _choose(part), "prompt": part})
        ]
    if topics:
        return _call("run_handoff", {"label": topics[0]})
    return _say("Welcome to Skerry Line. Ask me about sailings, or about what is allowed on board.")


def _find_question(request: ChatRequest) -> str:
    """Return the last question of a person, without what assistants tell each other."""
    questions = [
        message.content
        for message in request.messages
        if isinstance(message, TextMessage)
        and message.role == "user"
        and not message.id.startswith("handoff-")
    ]
    return questions[-1] if questions else ""


def _read_results(request: ChatRequest) -> list[str]:
    """Return what the others have answered since the question."""
    results: list[str] = []
    for message in reversed(request.messages):
        if not isinstance(message, ResultMessage):
            break
        if message.name == "run_sub_agent":
            results.insert(0, message.result)
    return results


def _quote(request: ChatRequest, question: str) -> str:
    """Return the sentence of the passages that has most of the question's long words."""
    words = set(_split(question))
    sentences = [
        re.sub(r"^[a-z ]+: ", "", sentence.strip())
        for passage in request.passages
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", passage.text)
        if len(_split(sentence)) > 4
    ]
    if not sentences:
        return "I have found nothing about that."
    return max(sentences, key=lambda sentence: sum(map(len, words & set(_split(sentence)))))


def _choose(part: str) -> str:
    return next((name for name, words in TOPICS.items() if _mentions(part, words)), "sailings")


def _mentions(text: str, words: Sequence[str]) -> bool:
    return any(word in text.lower() for word in words)


def _split(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if len(word) > 2]


def _say(text: str) -> Sequence[Event]:
    return say([f"{word} " for word in text.split()], id=new_id())


def _call(name: str, arguments: Mapping[str, Any]) -> Sequence[Event]:
    return call(name, arguments, id=new_id())
