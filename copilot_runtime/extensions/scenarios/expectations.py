"""Checks the record of a conversation against its expectations."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.extensions.scenarios.definition import (
    CallCheck,
    Expectation,
    FailureCheck,
    Limits,
    PlanCheck,
    ResourceCheck,
    TaskCheck,
    TextCheck,
    TraceCheck,
)
from copilot_runtime.extensions.scenarios.record import TurnRecord
from copilot_runtime.extensions.scenarios.values import (
    PatternTimeout,
    format_value,
    is_part,
    read_path,
    search_pattern,
    shorten,
)
from copilot_runtime.testing.protocols import ToolCall


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed expectation."""

    name: str
    """The field of the expectation, such as `calls`."""
    expected: str
    actual: str
    turn: int | None = None
    """The turn number, from 1; `None` for the conversation as a whole."""


def find_failures(expect: Expectation, record: TurnRecord) -> Iterator[Failure]:
    """Yield the failed expectations, except those of a judge."""
    if expect.fails is not None:
        yield from _check_failure(expect.fails, record)
    yield from _check_calls(expect, record.calls)
    if expect.recalls is not None:
        yield from _check_resources(expect.recalls, record)
    if expect.text is not None:
        yield from _check_text("text", expect.text, record.text)
    if expect.answered_by not in (None, record.answered_by):
        yield Failure("answered_by", str(expect.answered_by), record.answered_by)
    if expect.asks is not None:
        yield from _check_questions(expect.asks, record.questions)
    if expect.state is not None and not is_part(expect.state, record.state):
        yield Failure("state", f"has {format_value(expect.state)}", format_value(record.state))
    for check in expect.trace:
        yield from _check_trace(check, record)
    if expect.plan is not None:
        yield from _check_plan(expect.plan, as_object(record.plan))
    if expect.limits is not None:
        yield from _check_limits(expect.limits, record)


def _check_failure(check: FailureCheck, record: TurnRecord) -> Iterator[Failure]:
    if record.failure is None:
        yield Failure("fails", "an error", f"an answer: {shorten(record.text)}")
        return
    if check.code not in (None, record.failure.code):
        yield Failure("fails.code", str(check.code), record.failure.code)
    yield from _check_text("fails.message", check.message, record.failure.message)


def _check_text(name: str, check: TextCheck, text: str) -> Iterator[Failure]:
    if (violation := check.find_violation(text)) is not None:
        yield Failure(name, violation, shorten(text, 2000) or "(nothing)")


def _check_calls(expect: Expectation, calls: Sequence[ToolCall]) -> Iterator[Failure]:
    for name in expect.not_called:
        if any(fnmatchcase(call.name, name) for call in calls):
            yield Failure("not_called", f"no call of {name}", _list_calls(calls))
    if expect.calls is None:
        return
    if not expect.calls and calls:
        yield Failure("calls", "no calls", _list_calls(calls))
    matches = [[call for call in calls if _fits(check, call)] for check in expect.calls]
    for check, found in zip(expect.calls, matches, strict=True):
        if (count := _describe_count(check, len(found))) is not None:
            expected = f"{count} of {_describe_call(check)}"
            actual = f"{len(found)} among {_list_calls(calls)}" if calls else "no calls"
            yield Failure("calls", expected, actual)
    if expect.in_order and all(matches) and not _is_in_order(expect.calls, calls):
        order = ", ".join(_describe_call(check) for check in expect.calls)
        yield Failure("in_order", order, _list_calls(calls))
    if not expect.other_calls:
        others = [call for call in calls if not any(_fits(it, call) for it in expect.calls)]
        if others:
            yield Failure("other_calls", "no other calls", _list_calls(others))


def _fits(check: CallCheck, call: ToolCall) -> bool:
    return (
        fnmatchcase(call.name, check.name)
        and is_part(check.arguments, call.arguments)
        and all(
            _finds_pattern(pattern, _as_text(read_path(call.arguments, path)))
            for path, pattern in check.matches.items()
        )
        and (check.result is None or check.result.find_violation(call.result or "") is None)
        and (check.where is None or _finds(check.where, _encode_call(call)))
    )


def _finds_pattern(pattern: str, text: str) -> bool:
    try:
        return search_pattern(pattern, text)
    except PatternTimeout:
        return False


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format_value(value)


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments, "result": call.result}


def _describe_count(check: CallCheck, count: int) -> str | None:
    """Return the expected number of calls as text, or None if the count matches."""
    if check.count is not None:
        return None if count == check.count else f"{check.count} calls"
    if check.at_most is not None and count > check.at_most:
        return f"at most {check.at_most} calls"
    least = check.at_least
    if least is None:
        least = 1 if check.at_most is None else 0
    return None if count >= least else f"at least {least} call{'s' if least != 1 else ''}"


def _describe_call(check: CallCheck) -> str:
    details = check.model_dump(
        include={"arguments", "matches", "where", "result"}, exclude_defaults=True
    )
    return f"{check.name} {format_value(details)}" if details else check.name


def _is_in_order(checks: Sequence[CallCheck], calls: Sequence[ToolCall]) -> bool:
    """Return `True` if matching calls occur in the order of the checks."""
    left = iter(calls)
    return all(any(_fits(check, call) for call in left) for check in checks)


def _list_calls(calls: Sequence[ToolCall]) -> str:
    texts = [f"{call.name}({shorten(format_value(call.arguments))})" for call in calls]
    return ", ".join(texts) or "no calls"


def _check_resources(check: ResourceCheck, record: TurnRecord) -> Iterator[Failure]:
    found, results = record.resources, record.results
    missing = [
        it
        for it in check.resources
        if not any(_is_resource(it, name) for one in found for name in one.names)
        and not any(_mentions(text, it) for text in results)
    ]
    count = len(check.resources) - len(missing)
    least = len(check.resources) if check.at_least is None else check.at_least
    if count < least:
        yield Failure(
            "recalls",
            f"{least} of {', '.join(check.resources)}; missing: {', '.join(missing)}",
            shorten(", ".join(dict.fromkeys(map(str, found))), 2000) or "no resources",
        )


def _is_resource(pattern: str, name: str) -> bool:
    """Return `True` if a pattern matches a name or its last segments; `*` is a wildcard."""
    return any(fnmatchcase(name, f"{start}{pattern}") for start in ("", "*/", "*#", "*.", "*:"))


def _mentions(text: str, id: str) -> bool:
    """Return `True` if a text contains an identifier, but not as a prefix of a longer one."""
    for match in re.finditer(re.escape(id), text):
        behind = text[match.end() : match.end() + 1]
        if not (behind.isalnum() or behind in ("-", "_")):
            return True
    return False


def _check_questions(checks: Sequence[TextCheck], questions: Sequence[str]) -> Iterator[Failure]:
    texts = "; ".join(questions) or "no questions"
    if not checks and questions:
        yield Failure("asks", "no questions", texts)
    for check in checks:
        if all(check.find_violation(question) for question in questions):
            expected = check.find_violation("") or "is empty"
            yield Failure("asks", f"a question that {expected}", texts)


def _check_trace(check: TraceCheck, record: TurnRecord) -> Iterator[Failure]:
    expected = check.query
    try:
        value = _evaluate(check.query, [*record.spans])
    except CopilotError as error:
        yield Failure("trace", expected, error.message)
        return
    if "equals" in check.model_fields_set:
        if not (is_part(check.equals, value) and is_part(value, check.equals)):
            yield Failure("trace", f"{expected} is {format_value(check.equals)}", _show(value))
    elif not _is_something(value):
        names = ", ".join(span["name"] for span in record.spans)
        yield Failure("trace", expected, f"{_show(value)} in the spans {names or '(none)'}")


def _check_plan(check: PlanCheck, plan: dict[str, Any]) -> Iterator[Failure]:
    if not plan:
        yield Failure("plan", "a plan", "no plan")
        return
    if check.status not in (None, plan.get("status")):
        reason = plan.get("reason")
        actual = f"{plan.get('status')}{f': {reason}' if reason else ''}"
        yield Failure("plan.status", str(check.status), actual)
    tasks = [*_list_tasks(plan)]
    for task in check.tasks:
        if not any(_is_task(task, it) for it in tasks):
            texts = [_describe_task(it) for it in tasks]
            yield Failure(
                "plan.tasks",
                format_value(task.model_dump(exclude_none=True)),
                "; ".join(texts) or "no tasks",
            )
    if check.where is not None and not _finds(check.where, plan):
        yield Failure("plan.where", check.where, "; ".join(map(_describe_task, tasks)))


def _list_tasks(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task in cast("list[Any]", plan.get("tasks") or []):
        fields = as_object(task)
        yield fields
        yield from _list_tasks(fields)


def _is_task(check: TaskCheck, task: dict[str, Any]) -> bool:
    passed = as_object(task.get("evaluation")).get("passed")
    return (
        fnmatchcase(str(task.get("name")), check.name)
        and check.status in (None, task.get("status"))
        and check.assistant in (None, task.get("assistant"))
        and check.passed in (None, passed)
    )


def _describe_task(task: dict[str, Any]) -> str:
    names = ("name", "status", "assistant", "reason", "evaluation")
    return format_value({name: task[name] for name in names if task.get(name)})


def _check_limits(limits: Limits, record: TurnRecord) -> Iterator[Failure]:
    spending = record.spending
    values: dict[str, float] = {
        "requests": spending.requests,
        "calls": len(record.calls),
        "tokens": spending.input_tokens + spending.output_tokens,
        "input_tokens": spending.input_tokens,
        "output_tokens": spending.output_tokens,
        "dollars": spending.dollars,
        "seconds": spending.seconds,
    }
    for name, limit in limits.model_dump(exclude_none=True).items():
        if values[name] > limit:
            yield Failure(f"limits.{name}", f"at most {limit:g}", f"{values[name]:.6g}")
    if limits.dollars is not None and spending.unpriced:
        actual = f"{spending.unpriced} requests to models without a known price"
        yield Failure("limits.dollars", f"at most {limits.dollars:g}", actual)


def _finds(query: str, value: Any) -> bool:
    try:
        return _is_something(_evaluate(query, value))
    except CopilotError:  # a function with an argument of a wrong type counts as no result
        return False


def _evaluate(query: str, value: Any) -> Any:
    from copilot_runtime.extensions.tracing.store.interpreter import Interpreter, parse

    return Interpreter(lambda: None).evaluate(parse(query), value)


def _is_something(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {})


def _show(value: Any) -> str:
    return shorten(format_value(value), 2000)
