"""Redacts the operator's instructions from an error in which a provider repeats them."""

import logging
import re
from html import unescape
from traceback import format_exception
from urllib.parse import unquote

from copilot_runtime.base.errors import CopilotError

_LEAST = 24
"""Letters and digits in a row that are no coincidence."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")
_NO_WORD = re.compile(r"[\W_]+")

logger = logging.getLogger(__name__)


def redact_error(error: CopilotError, instructions: str) -> None:
    """Replace the message and the hint of an error that repeats a part of the instructions.

    Causes that repeat them are removed, because hooks receive these, too. The original error is
    logged at the level `debug`.
    """
    if not instructions:
        return
    cause = error.__cause__ or error.__context__
    if cause is not None and _repeats(_describe(cause), instructions):
        logger.debug("The provider repeated instructions in the cause of an error", exc_info=error)
        error.__cause__ = error.__context__ = None
    if not _repeats(f"{error.message}\n{error.hint or ''}", instructions):
        return
    logger.debug("The provider repeated instructions: %s (%s)", error.message, error.hint)
    # what adapters put before the provider's words says which of them it was
    service = error.message.partition(" API error: ")[0]
    service = "The model's provider" if service == error.message else service
    error.message = f"{service} refused the request. Why is in the server's log, at level debug."
    error.args = (error.message,)
    error.hint = "The provider's sentence repeats the instructions, so it is not shown."


def _describe(cause: BaseException) -> str:
    """Return the messages of an exception and of its causes, without tracebacks."""
    return "".join(format_exception(cause, limit=0))


def _repeats(text: str, instructions: str) -> bool:
    """Return whether a text contains a long enough part of the instructions, or all of them."""
    words, secret = _normalize(text), _normalize(instructions)
    size = min(_LEAST, len(secret))
    if size < _LEAST // 2:  # too short to tell from what anybody says
        return False
    pieces = {words[at : at + size] for at in range(len(words) - size + 1)}
    return any(secret[at : at + size] in pieces for at in range(len(secret) - size + 1))


def _normalize(text: str) -> str:
    """Return the letters and digits of a text, which may be escaped as in JSON, HTML or a URL."""
    return _NO_WORD.sub("", _ESCAPE.sub(_decode_escape, unescape(unquote(text)))).casefold()


def _decode_escape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else ""
