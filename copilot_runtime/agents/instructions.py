"""The operator's instructions for a model: a text, or a function that returns one for each run.

They are part of the request to the model only: neither the run nor its events contain them, so they
are neither stored in threads nor sent to clients.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import call, capture_result
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError

Instructions = str | Callable[[RunInput], str | Awaitable[str | None] | None]
"""A text, or a function of the run, sync or async, that returns one; None for no instructions."""

_FAILED = "The instructions for this answer could not be made. The server's log says why."
_WAY_OUT = "Instructions are a text, or a function of the RunInput that returns one."

logger = logging.getLogger(__name__)


def check_instructions(instructions: Any) -> None:
    """Raise `ConfigurationFailed` if the value is neither text nor a function of a run."""
    if instructions is None or isinstance(instructions, str):
        return
    if not callable(instructions):
        kind = type(instructions).__name__
        raise ConfigurationFailed(f"The instructions are a {kind}.", hint=_WAY_OUT)
    try:
        signature = inspect.signature(instructions)
    except (TypeError, ValueError):  # some that are written in C have none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigurationFailed(
            f"The function {_get_name(instructions)!r} cannot make instructions: "
            "it does not take a run.",
            hint=f"Python says: {error}. It is called with one RunInput.",
        ) from None


async def resolve_instructions(instructions: Instructions | None, run: RunInput) -> str:
    """Return the instructions for a run, empty if there are none.

    A `CopilotError` of the function is raised unchanged, another exception as the cause of a
    `CopilotError`. Raises `ConfigurationFailed` if it returns neither text nor `None`.
    """
    if instructions is None or isinstance(instructions, str):
        return instructions or ""
    name = _get_name(instructions)
    text, error = await capture_result(call(instructions, run))
    if isinstance(error, CopilotError):
        raise error
    if error is not None:
        logger.error("The function %r made no instructions", name, exc_info=error)
        raise CopilotError(_FAILED) from error
    if text is None or isinstance(text, str):
        return text or ""
    kind = type(text).__name__
    raise ConfigurationFailed(
        _FAILED, hint=f"The function {name!r} returned a {kind}, and not text or None."
    )


def _get_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
