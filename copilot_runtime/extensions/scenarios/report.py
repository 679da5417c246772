"""Results of scenarios, and their reports as JSON, JUnit XML and Markdown.

The report of scripted scenarios is the same in each run: it has no times, and no ids.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from xml.etree import ElementTree

from copilot_runtime.base.formatting import format_dollars
from copilot_runtime.base.jsonvalue import drop_none
from copilot_runtime.extensions.scenarios.attempt import Attempt, Outcome
from copilot_runtime.extensions.scenarios.expectations import Failure
from copilot_runtime.extensions.scenarios.files import Place
from copilot_runtime.extensions.scenarios.models import Spending
from copilot_runtime.extensions.scenarios.record import FoundResource, TurnRecord
from copilot_runtime.extensions.scenarios.values import format_value, shorten

FORMAT = 1
"""The version of the report format."""
_ROUNDING = 1e-9
_LONGEST_RESULT = 20_000
"""Maximum characters of a tool's result."""


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a scenario with one model."""

    place: Place
    model: str | None = None
    attempts: list[Attempt] = field(default_factory=list[Attempt])

    @property
    def is_skipped(self) -> bool:
        """Whether the file skips the scenario."""
        return self.place.scenario.skip is not None

    @property
    def pass_count(self) -> int:
        """The number of attempts that passed."""
        return sum(attempt.outcome == "passed" for attempt in self.attempts)

    @property
    def outcome(self) -> Outcome:
        """The outcome: passed if enough attempts passed, or error if no attempt could be played."""
        if self.is_skipped or not self.attempts:
            return "skipped"
        scenario = self.place.scenario
        if self.pass_count / scenario.repeat >= scenario.pass_rate - _ROUNDING:
            return "passed"
        missing = scenario.repeat - len(self.attempts)  # of an interruption
        if (self.pass_count + missing) / scenario.repeat >= scenario.pass_rate - _ROUNDING:
            return "skipped"
        outcomes = {attempt.outcome for attempt in self.attempts} - {"passed"}
        return "error" if outcomes == {"error"} else "failed"

    @property
    def spending(self) -> Spending:
        """The usage of all model requests, except those of judges."""
        total = Spending()
        for attempt in self.attempts:
            for turn in attempt.turns:
                total += turn.spending
        return total


@dataclass(slots=True)
class Report:
    """The results of all scenarios."""

    results: Sequence[Result]
    is_interrupted: bool = False
    seconds: float = 0.0
    """The duration of all scenarios, several of which run concurrently."""

    @property
    def is_passed(self) -> bool:
        """Whether no scenario failed, and the run was not interrupted."""
        return not self.is_interrupted and not (self.count("failed") or self.count("error"))

    def count(self, outcome: Outcome) -> int:
        """Return the number of scenarios with an outcome."""
        return sum(result.outcome == outcome for result in self.results)


def encode_report(report: Report) -> str:
    """Return a report as JSON."""
    from json import dumps as write

    return f"{write(_build_report(report), indent=2, ensure_ascii=False)}\n"


def encode_junit(report: Report) -> str:
    """Return a report as JUnit XML for CI systems."""
    suites = ElementTree.Element("testsuites", name="copilot-runtime test")
    for path in dict.fromkeys(result.place.path for result in report.results):
        results = [result for result in report.results if result.place.path == path]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=path,
            tests=str(len(results)),
            failures=str(sum(result.outcome == "failed" for result in results)),
            errors=str(sum(result.outcome == "error" for result in results)),
            skipped=str(sum(result.outcome == "skipped" for result in results)),
            time=_format_seconds(results),
        )
        for result in results:
            _add_case(suite, result)
    return encode_suites(suites)


def encode_markdown(report: Report) -> str:
    """Return a report as Markdown: a table, followed by the failures."""
    head = ["Scenario", "Model", "Outcome", "Passed", "Requests", "Tokens", "Cost"]
    lines = [f"# {describe_totals(report)}", "", _join(head), _join(["---"] * len(head))]
    lines += [_join(row) for row in list_rows(report)]
    for result in report.results:
        for attempt in result.attempts:
            if attempt.outcome != "passed":
                lines += ["", f"## {title(result, attempt)}", ""]
                lines += ["```text", *describe_attempt(attempt), "```"]
    return "\n".join([*lines, ""])


def list_rows(report: Report) -> Iterator[Sequence[str]]:
    """Yield a row for each scenario: name, model, outcome, passed, requests, tokens, dollars."""
    for result in report.results:
        spending = result.spending
        tokens = spending.input_tokens + spending.output_tokens
        yield (
            shorten(result.place.scenario.name),
            result.model or "",
            result.outcome,
            f"{result.pass_count}/{result.place.scenario.repeat}",
            str(spending.requests),
            str(tokens) if tokens else "",
            format_dollars(spending.dollars, spending.unpriced) if spending.dollars else "",
        )


def describe_totals(report: Report) -> str:
    """Return the number of scenarios per outcome, as one line of text."""
    outcomes: Sequence[tuple[Outcome, str]] = (
        ("passed", "passed"),
        ("failed", "failed"),
        ("error", "with errors"),
        ("skipped", "skipped"),
    )
    parts = [
        f"{count} {words}"
        for outcome, words in outcomes
        if (count := report.count(outcome)) or outcome == "passed"
    ]
    return ", ".join(parts) + (" (interrupted)" if report.is_interrupted else "")


def title(result: Result, attempt: Attempt) -> str:
    """Return the title of an attempt: scenario, with model and number if there are several."""
    scenario = result.place.scenario
    parts = [shorten(scenario.name), *([result.model] if result.model else [])]
    if scenario.repeat > 1:
        parts.append(f"{attempt.number} of {scenario.repeat}")
    return " · ".join(parts)


def describe_attempt(attempt: Attempt) -> Iterator[str]:
    """Yield lines about a failed attempt: failures, observed values and messages."""
    if attempt.error:
        yield f"error: {_hide_ids(attempt.error, attempt)}"
    for failure in attempt.failures:
        yield f"{failure.name}{_name_turn(failure, attempt)}"
        yield f"  expected: {_hide_ids(failure.expected, attempt)}"
        yield f"  actual:   {_hide_ids(failure.actual, attempt)}"
    for turn in attempt.turns:
        yield from (_hide_ids(line, attempt) for line in _describe_turn(turn))


def _name_turn(failure: Failure, attempt: Attempt) -> str:
    """Return the turn of a failure as text; empty if there is only one turn."""
    return f" (turn {failure.turn})" if failure.turn and len(attempt.turns) > 1 else ""


def _describe_turn(turn: TurnRecord) -> Iterator[str]:
    yield f"> {shorten(turn.say)}"
    for call in turn.calls:
        yield f"  → {call.name}({shorten(format_value(call.arguments))})"
        if call.result is not None:
            yield f"  ← {shorten(call.result)}"
    for question in turn.questions:
        yield f"  ? {shorten(question)}"
    for answer in turn.answers:
        yield f"  > {shorten(format_value(answer))}"
    if turn.text:
        yield f"  {shorten(turn.text, 1000)}"
    if turn.failure is not None:
        yield f"  ! {shorten(turn.failure.message)} [{turn.failure.code}]"


def _build_report(report: Report) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "passed": report.count("passed"),
        "failed": report.count("failed"),
        "errors": report.count("error"),
        "skipped": report.count("skipped"),
        "interrupted": report.is_interrupted,
        "scenarios": [_build_result(result) for result in report.results],
    }


def _build_result(result: Result) -> dict[str, Any]:
    scenario = result.place.scenario
    return drop_none(
        {
            "name": scenario.name,
            "file": result.place.path,
            "line": result.place.line,
            "description": scenario.description or None,
            "tags": [*scenario.tags] or None,
            "agent": scenario.agent,
            "model": result.model,
            "outcome": result.outcome,
            "skip": scenario.skip,
            "pass_rate": scenario.pass_rate,
            "passed": result.pass_count,
            "repeat": scenario.repeat,
            "attempts": [_build_attempt(attempt) for attempt in result.attempts],
        }
    )


def _build_attempt(attempt: Attempt) -> Any:
    values = drop_none(
        {
            "number": attempt.number,
            "outcome": attempt.outcome,
            "error": attempt.error or None,
            "seconds": None if attempt.is_scripted else round(attempt.seconds, 3),
            "failures": [_build_failure(it) for it in attempt.failures] or None,
            "turns": [_build_turn(turn, attempt) for turn in attempt.turns],
            "judge": [asdict(vote) for vote in attempt.votes] or None,
        }
    )
    return _hide_in(values, attempt)


def _build_failure(failure: Failure) -> dict[str, Any]:
    return drop_none(
        {
            "turn": failure.turn,
            "name": failure.name,
            "expected": failure.expected,
            "actual": failure.actual,
        }
    )


def _build_turn(turn: TurnRecord, attempt: Attempt) -> dict[str, Any]:
    spending = turn.spending
    return drop_none(
        {
            "say": turn.say,
            "text": turn.text,
            "calls": [
                {"name": it.name, "arguments": it.arguments, "result": _cut(it.result)}
                for it in turn.calls
            ]
            or None,
            "questions": [*turn.questions] or None,
            "answers": [*turn.answers] or None,
            "resources": [_build_resource(it) for it in turn.resources] or None,
            "answered_by": turn.answered_by,
            "error": None if turn.failure is None else asdict(turn.failure),
            "requests": spending.requests,
            "input_tokens": spending.input_tokens or None,
            "output_tokens": spending.output_tokens or None,
            "dollars": round(spending.dollars, 6) or None,
            "seconds_in_model": None if attempt.is_scripted else round(spending.seconds, 3),
        }
    )


def _cut(result: str | None) -> str | None:
    """Return a result, truncated to `_LONGEST_RESULT` characters."""
    if result is None or len(result) <= _LONGEST_RESULT:
        return result
    return f"{result[:_LONGEST_RESULT]}…"


def _build_resource(resource: FoundResource) -> dict[str, Any]:
    return drop_none(
        {
            "id": resource.id,
            "title": resource.title or None,
            "subjects": [*resource.subjects] or None,
        }
    )


def _add_case(suite: ElementTree.Element, result: Result) -> None:
    name = result.place.scenario.name
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=result.place.path,
        name=f"{name} [{result.model}]" if result.model else name,
        file=result.place.path,
        line=str(result.place.line),
        time=_format_seconds([result]),
    )
    attempts = [attempt for attempt in result.attempts if attempt.outcome != "passed"]
    lines = [
        line for it in attempts for line in (f"{title(result, it)}:", *describe_attempt(it), "")
    ]
    match result.outcome:
        case "skipped":
            reason = result.place.scenario.skip or "not played"
            ElementTree.SubElement(case, "skipped", message=clean_text(reason))
        case "failed" | "error" as kind:
            tag = "failure" if kind == "failed" else "error"
            element = ElementTree.SubElement(case, tag, message=clean_text(_summarize(result)))
            element.text = clean_text("\n".join(lines))
        case _:
            if lines:  # passed often enough
                ElementTree.SubElement(case, "system-out").text = clean_text("\n".join(lines))


def _summarize(result: Result) -> str:
    """Return one line about the first failure of a scenario that did not pass."""
    count = result.place.scenario.repeat
    passed = f" ({result.pass_count} of {count} passed)" if count > 1 else ""
    attempt = next(attempt for attempt in result.attempts if attempt.outcome == result.outcome)
    reason = _hide_ids(attempt.error, attempt)
    if attempt.failures and not reason:
        failure = attempt.failures[0]
        where = _name_turn(failure, attempt)
        expected, actual = (
            shorten(_hide_ids(text, attempt), 200) for text in (failure.expected, failure.actual)
        )
        reason = f"{failure.name}{where}: expected {expected}, got {actual}"
    return f"{reason}{passed}"


def _format_seconds(results: Sequence[Result]) -> str:
    """Return the total duration of the attempts; scripted ones count as 0 for stable reports."""
    attempts = [attempt for result in results for attempt in result.attempts]
    return f"{sum(it.seconds for it in attempts if not it.is_scripted):.3f}"


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _hide_ids(text: str, attempt: Attempt) -> str:
    """Replace the thread identifier, which differs in each run, by a placeholder."""
    return text.replace(attempt.thread_id, "<thread>") if attempt.thread_id else text


def _hide_in(value: Any, attempt: Attempt) -> Any:
    match value:
        case str():
            return _hide_ids(value, attempt)
        case Mapping():
            return {str(name): _hide_in(it, attempt) for name, it in value.items()}
        case list() | tuple():
            return [_hide_in(it, attempt) for it in value]
        case _:
            return value


def encode_suites(suites: ElementTree.Element) -> str:
    """Return a `testsuites` element as an XML document."""
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def clean_text(text: str) -> str:
    """Return a text without characters that are invalid in XML."""
    return "".join(it for it in text if it in "\n\t" or (it >= " " and it not in "\ufffe\uffff"))
