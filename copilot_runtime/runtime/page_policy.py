"""Restrict which instructions and which model a frontend may choose."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard

from copilot_runtime.api.messages import Message, TextMessage
from copilot_runtime.api.run_input import PAGE_INSTRUCTIONS, ContextItem, RunInput

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePolicy:
    """Restrictions for incoming requests; a `before_request` hook may still add anything."""

    instructions: Literal["keep", "context", "drop"] = "keep"
    """Whether system and developer messages of a frontend are kept, turned into context, or
    dropped."""
    allows_model: Callable[[str], bool] = lambda _: False
    """Returns `True` if a frontend may choose the model of that name."""

    def apply(self, run: RunInput) -> RunInput:
        """Return the request after applying the restrictions.

        A model that is not allowed is ignored, as in the Node runtime, and the adapter's default
        answers.
        """
        model = run.parameters.model
        if model is not None and not self.allows_model(model):
            logger.info("Run %s: page_models does not have the model %.100r", run.run_id, model)
            run = replace(run, parameters=replace(run.parameters, model=None))
        if self.instructions == "keep":
            return run
        context = run.context
        if self.instructions == "context":
            context = [
                *context,
                *(
                    ContextItem(PAGE_INSTRUCTIONS, message.content)
                    for message in run.messages
                    if _is_instruction(message) and message.content.strip()
                ),
            ]
        return replace(
            run,
            messages=[message for message in run.messages if not _is_instruction(message)],
            context=context,
            page_instructions=self.instructions,
        )


def _is_instruction(message: Message) -> TypeGuard[TextMessage]:
    return isinstance(message, TextMessage) and message.role in ("system", "developer")
