"""Renders instructions as Jinja templates."""

from collections.abc import Mapping
from functools import lru_cache
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.errors import ConfigurationFailed

if TYPE_CHECKING:
    from jinja2 import Template, TemplateError

MAX_LENGTH = 200_000
"""Maximum length of a rendered text, in characters."""

_PUBLIC = "The instructions of the assistant cannot be written. The server's log says why."


def render_template(text: str, source: str, values: Mapping[str, Any], first_line: int = 1) -> str:
    """Return a rendered template, which starts at line `first_line` of its source.

    Templates run in a sandbox: they read the given values, have no side effects, and end soon.
    Raises `ConfigurationFailed` with the line if a template is malformed, uses an undefined name,
    or costs too much. Clients get no details.
    """
    if "{{" not in text and "{%" not in text:
        return text
    from jinja2 import TemplateError, UndefinedError

    from copilot_runtime.extensions.assistants.sandbox import bound_work

    template = _read_template(text, source, first_line)
    hint = None
    try:
        with bound_work():
            return _render(template, values)
    except UndefinedError as error:
        cause: Exception = error
        reason, hint = _end_sentence(error), f"There are: {', '.join(sorted(values))}."
    except TemplateError as error:
        cause, reason = error, f"the template fails: {_end_sentence(error)}"
    except Exception as error:  # any error of operators, filters and methods
        cause, reason = error, f"the template fails: {str(error).rstrip('.')}."
    line = _find_line(cause) + first_line - 1
    raise ConfigurationFailed(f"{source}:{line}: {reason}", hint=hint, public=_PUBLIC) from cause


def check_template(text: str, source: str, first_line: int = 1) -> None:
    """Raise `ConfigurationFailed` if a template is malformed.

    It starts at line `first_line` of its source.
    """
    if "{{" in text or "{%" in text:
        _read_template(text, source, first_line)


def _read_template(text: str, source: str, first_line: int) -> "Template":
    from jinja2 import TemplateSyntaxError

    try:
        return _compile(text)
    except TemplateSyntaxError as error:
        line = error.lineno + first_line - 1
        raise ConfigurationFailed(
            f"{source}:{line}: {_end_sentence(error)}", public=_PUBLIC
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigurationFailed(
            f"{source}:{first_line}: the template cannot be read: it is nested too deep, or has "
            "too large a number.",
            public=_PUBLIC,
        ) from error


@lru_cache(maxsize=256)
def _compile(text: str) -> "Template":
    from copilot_runtime.extensions.assistants.sandbox import BoundedEnvironment

    return BoundedEnvironment().from_string(text)


def _render(template: "Template", values: Mapping[str, Any]) -> str:
    pieces: list[str] = []
    length = 0
    for piece in template.generate(values):
        pieces.append(piece)
        length += len(piece)
        if length > MAX_LENGTH:
            raise ValueError(f"it makes more than {MAX_LENGTH} characters")
    return "".join(pieces)


def _find_line(error: BaseException) -> int:
    """Return the line of the template in which an error was raised."""
    frames = walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == "<template>"]
    return lines[-1] if lines else 1


def _end_sentence(error: "TemplateError") -> str:
    return f"{(error.message or 'it cannot be read').rstrip('.')}."
