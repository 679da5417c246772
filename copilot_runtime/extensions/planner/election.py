"""Elects an assistant for each task by the similarity of their descriptions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.planner.plan import Plan, TaskState
from copilot_runtime.extensions.planner.roles import Assignment
from copilot_runtime.extensions.planner.tasks import PROPERTIES, Task

_TIE = 1e-4
"""Scores that differ by less are a tie; the alphabetically first name wins."""


class NoMatchingAssistant(CopilotError):
    """No assistant fits a task."""

    code = "NOT_FOUND"
    status_code = 422
    visibility = "banner"
    severity = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An assistant that may be elected."""

    name: str
    description: str
    """Purpose, instructions, applicability and evaluation, as in a task. Without headings, which
    would raise the similarity of all texts. Its name, if it has no description."""
    is_opaque: bool = False
    """`True` if its tool calls are not visible."""


class SimilarityElector:
    """Elects the candidate whose description is most similar to that of the task.

    A sole candidate beside the fallback gets every task if it has no description, or if there is
    no fallback.
    A task that names its assistant gets that one. Similarity is the cosine of the embeddings.

    Args:
    candidates: Lists the candidates that a plan has now.
    embedder: Embeds descriptions.
    floor: Minimum similarity, from -1 to 1.
    fallback: Assistant for tasks that no candidate fits; if empty, such a task fails.
    """

    def __init__(
        self,
        candidates: Callable[[Plan], Awaitable[Sequence[Candidate]]],
        embedder: Embedder,
        *,
        floor: float = 0.1,
        fallback: str = "",
    ) -> None:
        self._candidates = candidates
        self._embedder = embedder
        self._floor = floor
        self._fallback = fallback
        self._vectors: dict[str, NDArray[np.float32]] = {}
        """Embeddings by description."""

    async def elect(self, state: TaskState, plan: Plan) -> Assignment:
        """Return the assistant for a task. Raises `NoMatchingAssistant` if no candidate fits."""
        candidates = {one.name: one for one in await self._candidates(plan)}
        if (name := state.task.assistant) != "":
            if name not in candidates:
                raise NoMatchingAssistant(
                    f"There is no assistant {name[:100]!r} for the task {state.task.name!r}. "
                    f"There are: {', '.join(candidates) or 'none'}."
                )
            return Assignment(name, None, candidates[name].is_opaque)
        scores = await self._score(_write_profile(state.task), candidates)
        ranked = sorted(scores.items(), key=lambda item: (-round(item[1] / _TIE), item[0]))
        others = [name for name in candidates if name != self._fallback]
        is_bare = len(others) == 1 and candidates[others[0]].description == others[0]
        if is_bare or (len(others) == 1 and not self._fallback):
            name = others[0]
        elif ranked and ranked[0][1] >= self._floor:
            name = ranked[0][0]
        else:
            name = self._fallback
        if name in candidates:
            return Assignment(name, scores[name], candidates[name].is_opaque)
        best = ", ".join(f"{name} {score:.2f}" for name, score in ranked[:3])
        reason = (
            f"the nearest are {best}, and {self._floor:g} is needed." if best else "none exist."
        )
        advice = "" if self._fallback else " With `planner.fallback: assistant`, the model does it."
        raise NoMatchingAssistant(
            f"No assistant fits the task {state.task.name!r}: {reason}{advice}"
        )

    async def _score(
        self, description: str, candidates: Mapping[str, Candidate]
    ) -> dict[str, float]:
        """Return the similarity of the task to each candidate, by name."""
        new = [
            one.description for one in candidates.values() if one.description not in self._vectors
        ]
        if new:
            vectors = await self._embedder.embed(new)
            current = {one.description for one in candidates.values()}
            self._vectors = {
                text: vector for text, vector in self._vectors.items() if text in current
            } | dict(zip(new, vectors, strict=True))
        if not candidates:
            return {}
        (query,) = await self._embedder.embed_queries([description])
        return {
            name: float(self._vectors[one.description] @ query) for name, one in candidates.items()
        }


def describe_task(task: Task) -> str:
    """Return the four descriptive properties of a task as Markdown."""
    sections = (
        ("Purpose", task.purpose),
        ("Instructions", task.instructions),
        ("Applicability", task.applicability),
        ("Evaluation", task.evaluation),
    )
    return "\n\n".join(f"**{title}:** {text}" for title, text in sections if text)


def _write_profile(task: Task) -> str:
    """Return the description of a task in the form of `Candidate.description`."""
    return "\n\n".join(text for name in PROPERTIES if (text := getattr(task, name)))
