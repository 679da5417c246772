"""Builds the system message that the server adds before a conversation."""

import json
from collections.abc import Sequence
from typing import Any

from copilot_runtime.agents.grounding import render_passages
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import ContextItem

_CONTEXT = "## Context from the application"
_STATE = (
    "## Application State\n\nThis is state from the application that you can edit by calling "
    "AGUISendStateSnapshot or AGUISendStateDelta."
)


def build_system_message(
    run_id: str,
    *,
    instructions: str = "",
    context: Sequence[ContextItem] = (),
    state: Any = None,
    passages: Sequence[Passage] = (),
) -> list[TextMessage]:
    """Return a list with one message of instructions, context, state and passages; may be empty.

    It is a single message because many models refuse a second one. Its headings and its sentence
    are those of the Node runtime 1.74.
    """
    parts = [instructions] if instructions.strip() else []
    if context:
        parts += [_CONTEXT, *(f"{item.description}:\n{item.value}" for item in context)]
    if state not in (None, {}):
        parts += [
            _STATE,
            f"```json\n{json.dumps(state, indent=2, ensure_ascii=False, default=str)}\n```",
        ]
    if passages:
        parts.append(render_passages(passages, run_id))
    if not parts:
        return []
    return [TextMessage(id=f"system-{run_id}", role="system", content="\n\n".join(parts))]
