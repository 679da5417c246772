"""One thing that was looked at, and what was found."""

from dataclasses import dataclass
from typing import Literal

from copilot_runtime.api.registry import explain_install
from copilot_runtime.base.errors import CopilotError, MissingPackage

State = Literal["good", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found about one thing, and what to do if it is not good."""

    name: str
    state: State
    text: str
    hint: str = ""


def good(name: str, text: str) -> Finding:
    return Finding(name=name, state="good", text=text)


def warning(name: str, text: str, hint: str) -> Finding:
    return Finding(name=name, state="warning", text=text, hint=hint)


def problem(name: str, text: str, hint: str = "") -> Finding:
    return Finding(name=name, state="problem", text=text, hint=hint)


def explain_error(name: str, error: Exception) -> Finding:
    """Return what an error means: our own ones say how they are mended."""
    if isinstance(error, MissingPackage):
        return problem(name, error.message, explain_install(error) or error.hint or "")
    if isinstance(error, CopilotError):
        return problem(name, error.message, error.hint or "")
    return problem(name, f"{type(error).__name__}: {error}", "The log of the server says more.")
