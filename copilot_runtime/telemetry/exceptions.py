"""Exceptions as attributes of spans and events: class, message and traceback."""

from traceback import format_exception

from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.truncation import truncate

MAX_CHARACTERS = 16 * 1024
"""Maximum length of a message or a traceback, in characters; a traceback keeps its end."""

_FRAMES = 50
"""Maximum number of frames per exception in a traceback: the innermost ones are kept."""


def name_class(error: BaseException) -> str:
    """Return an exception's qualified class name; built-in classes have no module."""
    kind = type(error)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def read_message(error: BaseException) -> str:
    """Return the message of an exception, or its class name if `__str__` raises."""
    try:
        return str(error)
    except Exception:  # a third-party `__str__` may raise anything
        return type(error).__name__


def describe_exception(error: BaseException) -> dict[str, str]:
    """Return the message and the traceback of an exception as content attributes."""
    try:
        trace = "".join(format_exception(error, limit=-_FRAMES))
    except Exception:  # the `__str__` of a chained exception may raise, too
        trace = ""
    message = truncate(replace_surrogates(read_message(error)), MAX_CHARACTERS)
    return {
        semconv.EXCEPTION_MESSAGE: message,
        semconv.EXCEPTION_STACKTRACE: replace_surrogates(trace[-MAX_CHARACTERS:]),
    }
