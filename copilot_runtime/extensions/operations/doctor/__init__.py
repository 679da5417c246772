"""Diagnoses a server's configuration and environment, and suggests fixes: the results of checks."""

from dataclasses import dataclass
from typing import Literal

from copilot_runtime.api.registry import explain_missing
from copilot_runtime.base.errors import CopilotError, MissingPackage

State = Literal["good", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check, with a hint unless it is good."""

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
    """Return the finding for an exception, with the hint of our own errors."""
    if isinstance(error, MissingPackage):
        return problem(name, explain_missing(error))
    if isinstance(error, CopilotError):
        return problem(name, error.message, error.hint or "")
    return problem(name, f"{type(error).__name__}: {error}", "The log of the server says more.")
