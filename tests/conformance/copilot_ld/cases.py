"""Read cases, run them, and say what came out."""

import inspect
import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from copilot_runtime.base.errors import CopilotError
from tests.conformance.copilot_ld.handlers import HANDLERS

OUR_COPY = Path(__file__).parent / "cases.json"

Outcome = Literal["passed", "failed", "quirk", "skip", "unhandled"]


@dataclass(frozen=True)
class Case:
    """One recorded call: what went in, and what came out."""

    id: str
    system: str
    feature: str
    input: Any
    output: Any
    stance: str = "match"
    part: str = ""
    note: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a handler has judged by itself, because the output of its case is prose."""

    holds: bool
    actual: Any = None


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    case: Case
    outcome: Outcome
    actual: Any = field(default=None)


def read_cases(path: Path, parts: Collection[str] = ()) -> list[Case]:
    """Read the cases of a file, of some parts or of all."""
    document = json.loads(path.read_text(encoding="utf-8"))
    names = Case.__dataclass_fields__
    cases = [
        Case(**{name: value for name, value in case.items() if name in names})
        for case in (document["cases"] if isinstance(document, dict) else document)
    ]
    return [case for case in cases if not parts or case.part in parts]


async def run_cases(cases: Iterable[Case]) -> list[Result]:
    """Run cases one after the other."""
    return [await run_case(case) for case in cases]


async def run_case(case: Case) -> Result:
    """Run a case. Quirks are counted and not run: what we do instead has tests of its own."""
    if case.stance == "quirk":
        return Result(case, "quirk")
    if case.stance == "skip":
        return Result(case, "skip")
    handler = _find_handler(case.system)
    if handler is None:
        return Result(case, "unhandled", f"no handler of the system {case.system!r}")
    try:
        actual = handler(case)
        if inspect.isawaitable(actual):
            actual = await actual
    except CopilotError as error:
        actual = {"error": error.message}
    except Exception as error:
        return Result(case, "failed", f"{type(error).__name__}: {error}")
    if isinstance(actual, Verdict):
        return Result(case, "passed" if actual.holds else "failed", actual.actual)
    holds = equal(actual, case.output) or is_same_error(actual, case.output)
    return Result(case, "passed" if holds else "failed", actual)


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; numbers may differ in the ninth digit."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def is_same_error(one: Any, other: Any) -> bool:
    """Return whether two errors say the same, but for the JSON that they quote at their end."""
    if not (
        isinstance(one, dict) and isinstance(other, dict) and "error" in one and "error" in other
    ):
        return False
    return str(one["error"]).partition(": {")[0] == str(other["error"]).partition(": {")[0]


def _find_handler(system: str) -> Any:
    target = HANDLERS.get(system)
    if target is None:
        return None
    module, _, name = target.partition(":")
    return getattr(__import__(module, fromlist=[name]), name)
