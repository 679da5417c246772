"""What an AG-UI client asks, as the run it becomes."""

from typing import Any

import pytest

from copilot_runtime.api import (
    Action,
    AgentInput,
    Caller,
    ContextItem,
    Parameters,
    Resume,
    RunInput,
)
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.threads.log_ids import asks_same
from copilot_runtime.transports.agui.decode import run_input
from tests.in_one_test import in_one_test
from tests.wire_agui.http import run_input as body_of


def decoded(body: Any = None, **options: Any) -> RunInput:
    caller = Caller(user="ada", properties=options.pop("properties", {}))
    given: dict[str, Any] = {"agent": None, "max_messages": 10, **options}
    return run_input(body_of() if body is None else body, caller, **given)


def test_a_request_becomes_a_run_of_its_user() -> None:
    run = decoded(body_of(thread="t1", run="r1", state={"n": 1}), agent="travel")

    assert (run.thread_id, run.run_id, run.user, run.agent) == ("t1", "r1", "ada", "travel")
    assert run.messages == [TextMessage(id="user-1", role="user", content="Hi")]
    assert run.agents == {"travel": AgentInput(state={"n": 1})}
    assert (run.persist, run.detached, run.follow_up) == (True, True, "server")


def test_two_runs_of_one_id_have_logs_of_their_own() -> None:
    assert decoded().log_id != decoded().log_id


@in_one_test("name", ["run", "ask", "connect", "suggest"])
def test_only_a_run_is_known_again_by_what_it_asks(name: str) -> None:
    one, other = decoded(name=name), decoded(name=name)

    assert asks_same(one.log_id, other.log_id) == (name == "run")


def test_a_suggestion_is_not_kept_and_ends_with_its_reader() -> None:
    run = decoded(name="suggest")

    assert (run.persist, run.detached, run.request_type) == (False, False, "Suggestion")


def test_what_the_client_says_comes_on_top_of_what_the_operator_set() -> None:
    body = body_of(forwardedProps={"a": "client", "c": 1})

    assert decoded(body, properties={"a": "operator", "b": 2}).properties == {
        "a": "client",
        "b": 2,
        "c": 1,
    }


def test_tools_and_context_are_read_however_little_they_say() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "number"}}}
    body = body_of(
        tools=[{"name": "f"}, {"name": "g", "description": "d", "parameters": schema}],
        context=[{"description": "d", "value": "v"}, {"value": {"a": 1}}],
    )
    run = decoded(body)

    assert run.actions == [
        Action(name="f", parameters={"type": "object", "properties": {}}),
        Action(name="g", description="d", parameters=schema),
    ]
    assert run.context == [ContextItem("d", "v"), ContextItem("", '{"a":1}')]


@in_one_test(
    ("choice", "parameters"),
    [
        ("required", Parameters(tool_choice="required")),
        (
            {"type": "function", "function": {"name": "f"}},
            Parameters(tool_choice="function", tool_choice_name="f"),
        ),
        (
            {"type": "tool", "toolName": "f"},
            Parameters(tool_choice="function", tool_choice_name="f"),
        ),
        ({"type": "function"}, Parameters()),
        (5, Parameters()),
    ],
)
def test_the_wish_for_a_tool_is_read(choice: Any, parameters: Parameters) -> None:
    assert decoded(body_of(forwardedProps={"toolChoice": choice})).parameters == parameters


def test_answers_to_interrupts_are_read_in_both_forms() -> None:
    today = [
        {"interruptId": "i", "status": "resolved", "payload": {"ok": True}},
        {"interruptId": "j", "status": "cancelled"},
    ]
    legacy = {"command": {"resume": "yes", "interruptEvent": {"ask": 1}}}

    assert decoded(body_of(resume=today)).resume == [
        Resume("", '{"ok":true}', interrupt_id="i", payload={"ok": True}),
        Resume("", None, interrupt_id="j", status="cancelled"),
    ]
    assert decoded(body_of(forwardedProps=legacy)).resume == [
        Resume('{"ask":1}', "yes", payload="yes")
    ]


def test_an_answer_to_an_interrupt_may_leave_out_that_it_is_one() -> None:
    assert decoded(body_of(resume=[{"interruptId": "i"}])).resume == [
        Resume("", None, interrupt_id="i")
    ]


@in_one_test("status", ["denied", "Resolved", 5, ["resolved"]])
def test_an_answer_that_is_neither_yes_nor_no_is_refused(status: Any) -> None:
    body = body_of(resume=[{"interruptId": "i", "status": status}])

    with pytest.raises(Misuse, match=r"resume\[0\].status must be resolved or cancelled"):
        decoded(body)


@in_one_test("wrong", ["", "a\nb", "a\0b", "\x7f", "\x85", "\ud83d", "x" * 501])
@in_one_test("name", ["threadId", "runId"])
def test_an_id_that_no_log_could_show_is_refused(name: str, wrong: str) -> None:
    with pytest.raises(Misuse, match=name):
        decoded(body_of() | {name: wrong})


def test_too_many_messages_are_refused_before_they_are_read() -> None:
    with pytest.raises(LimitExceeded, match="11 messages; 10 are allowed"):
        decoded(body_of(messages=["not a message"] * 11))


@in_one_test(
    ("fields", "counted"),
    [
        ({"tools": [None] * 11}, "11 tools"),
        ({"context": [None] * 11}, "11 items of context"),
        ({"resume": [None] * 11}, "11 answers to interrupts"),
        (
            {"messages": [{"content": [None] * 6}, {"content": "", "toolCalls": [None] * 5}]},
            "11 parts and calls in its messages",
        ),
    ],
    ids=["tools", "context", "resume", "parts and calls"],
)
def test_too_much_of_anything_is_refused_before_it_is_read(
    fields: dict[str, Any], counted: str
) -> None:
    if "messages" in fields:
        fields["messages"] = [{"id": "1", "role": "user"} | it for it in fields["messages"]]

    with pytest.raises(LimitExceeded, match=f"{counted}; 10 are allowed"):
        decoded(body_of(**fields), max_items=10)


@in_one_test("body", [None, [], "run", 5])
def test_what_is_no_object_is_no_run(body: Any) -> None:
    with pytest.raises(Misuse, match="the body must be an object"):
        run_input(body, Caller(), agent=None, max_messages=1)
