"""Exceptions as spans and events tell of them: by their class, their message and their trace."""

from traceback import format_exception

from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.truncation import truncate

MAX_CHARACTERS = 16 * 1024
"""Longest message, and longest trace: of a longer trace, the end is kept."""

_FRAMES = 50
"""Most calls of each exception in a trace, the innermost."""


def name_class(error: BaseException) -> str:
    """Return the class of an exception with its module, but for those of the language."""
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def read_message(error: BaseException) -> str:
    """Return the message of an exception, or its class if it has none to tell."""
    try:
        return str(error)
    except Exception:  # its __str__ is somebody else's code
        return type(error).__name__


def describe_exception(error: BaseException) -> dict[str, str]:
    """Return what an exception says, and where it was raised, as attributes: both are content."""
    try:
        trace = "".join(format_exception(error, limit=-_FRAMES))
    except Exception:  # what it was caused by is somebody else's code, too
        trace = ""
    message = truncate(replace_surrogates(read_message(error)), MAX_CHARACTERS)
    return {
        semconv.EXCEPTION_MESSAGE: message,
        semconv.EXCEPTION_STACKTRACE: replace_surrogates(trace[-MAX_CHARACTERS:]),
    }
