"""Builds the system message with the context and the state of the application."""

import json
from collections.abc import Sequence
from typing import Any

from copilot_runtime.interfaces import ContextItem
from copilot_runtime.messages import TextMessage

_CONTEXT = "## Context from the application"
_STATE = (
    "## Application State\n\nThis is state from the application that you can edit by calling "
    "AGUISendStateSnapshot or AGUISendStateDelta."
)


def build_context_message(
    context: Sequence[ContextItem], state: Any, run_id: str
) -> list[TextMessage]:
    """Return the message to put before a conversation, or none without context and state.

    Its headings and its sentence are those of the Node runtime 1.74.
    """
    parts = (
        [_CONTEXT, *(f"{item.description}:\n{item.value}" for item in context)] if context else []
    )
    if state not in (None, {}):
        parts += [
            _STATE,
            f"```json\n{json.dumps(state, indent=2, ensure_ascii=False, default=str)}\n```",
        ]
    if not parts:
        return []
    return [TextMessage(id=f"context-{run_id}", role="system", content="\n\n".join(parts))]
