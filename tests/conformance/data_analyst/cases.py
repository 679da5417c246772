"""Read cases, give each to the handler of its area, and say what came out."""

import inspect
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.conformance.data_analyst.facts import judge
from tests.conformance.data_analyst.world import World

PACKAGE = "tests.conformance.data_analyst"

HANDLERS = {
    "input_guard": f"{PACKAGE}.prompts:answer_input",
    "output_guard": f"{PACKAGE}.prompts:answer_output",
    "classification": f"{PACKAGE}.prompts:answer_classification",
    "history": f"{PACKAGE}.prompts:answer_history",
    "sql_guard": f"{PACKAGE}.statements:answer_guard",
    "engine_sandbox": f"{PACKAGE}.statements:answer_sandbox",
    "sql_fingerprint": f"{PACKAGE}.statements:answer_fingerprint",
    "schema_fingerprint": f"{PACKAGE}.statements:answer_schema",
    "sql_autofix": f"{PACKAGE}.calls:answer_repairs",
    "skills": f"{PACKAGE}.prompts:answer_skills",
    "sql_examples": f"{PACKAGE}.prompts:answer_examples",
    "schema_context": f"{PACKAGE}.prompts:answer_schema",
    "prompt": f"{PACKAGE}.prompts:answer_prompt",
    "memory": f"{PACKAGE}.memories:answer",
    "cache": f"{PACKAGE}.calls:answer_cache",
    "tools": f"{PACKAGE}.calls:answer_tools",
    "stream": f"{PACKAGE}.streams:answer",
    "tracing": f"{PACKAGE}.spans:answer",
}


FILES = tuple(Path(__file__).parent / name for name in ("contract.json", "cases.json"))
"""A copy of what was decided before, and what we think is missing there."""

SHORT_AREAS: Mapping[str, str] = {
    "IG": "input_guard",
    "OG": "output_guard",
    "SG": "sql_guard",
    "ES": "engine_sandbox",
    "FP": "sql_fingerprint",
    "SF": "schema_fingerprint",
    "AF": "sql_autofix",
    "SK": "skills",
    "HI": "history",
    "ME": "memory",
    "CA": "cache",
    "TO": "tools",
    "ST": "stream",
    "SC": "schema_context",
    "PR": "prompt",
    "TR": "tracing",
    "CL": "classification",
    "EX": "sql_examples",
}
"""The beginning of an id → its area."""


class Given(Mapping[str, Any]):
    """What goes in. It notes what a handler reads: what nobody reads fails a case."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return key in self._values

    @property
    def unread(self) -> Sequence[str]:
        return [key for key in self._values if key not in self._read]


@dataclass(frozen=True)
class Case:
    """One statement of the contract: what goes in, and what must come out."""

    id: str
    area: str
    given: Given
    expect: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True)
class Suite:
    """The cases of a file, and the data they are about."""

    fixture: Sequence[str]
    tolerance: float
    cases: Sequence[Case]


@dataclass(frozen=True)
class Result:
    """What became of a case: it passed if there are no problems."""

    case: Case
    problems: Sequence[str] = field(default=())

    @property
    def has_passed(self) -> bool:
        return not self.problems


def read_suite(path: Path, areas: Collection[str] = ()) -> Suite:
    """Read the cases of a file, of some areas (`SG` or `sql_guard`) or of all.

    Raises `ValueError`, `KeyError` or `TypeError` for a file of another form.
    """
    document = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise TypeError("it is no object with cases")
    wanted = {SHORT_AREAS.get(area, area) for area in areas}
    cases = [
        Case(
            id=str(case["id"]),
            area=str(case["area"]),
            given=Given(case["given"]),
            expect=dict(case["expect"]),
            note=str(case.get("note", "")),
        )
        for case in document["cases"]
    ]
    chosen = [case for case in cases if not wanted or case.area in wanted]
    tolerance = float(document.get("float_tolerance", 1e-4))
    return Suite(list(document.get("fixture", ())), tolerance, chosen)


async def run_suite(suite: Suite) -> Sequence[Result]:
    """Run cases one after the other, all with the same data."""
    async with World(suite.fixture) as world:
        return [await run_case(case, world, suite.tolerance) for case in suite.cases]


async def run_case(case: Case, world: World, tolerance: float) -> Result:
    """Run a case. Whatever it raises is a problem of it alone."""
    handler = HANDLERS.get(case.area)
    if handler is None:
        known = ", ".join(sorted(HANDLERS))
        return Result(case, [f"There is no area {case.area!r}. Known: {known}."])
    module, _, name = handler.partition(":")
    try:
        answer = getattr(import_module(module), name)
        facts = answer(case.given, world)
        facts = await facts if inspect.isawaitable(facts) else facts
        problems = await judge(case.expect, facts, tolerance)
    except Exception as error:  # one case must not end the others
        return Result(case, [f"{type(error).__name__}: {error}"])
    unread = [f"Nothing here reads {key!r} of what is given." for key in case.given.unread]
    return Result(case, [*problems, *unread])
