"""What of a conversation an assistant with a budget reads."""

from collections.abc import Sequence

import pytest

from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import LimitExceeded, UnknownName
from copilot_runtime.extensions.assistants.window import BudgetWindow
from copilot_runtime.extensions.knowledge.memory import Allocation
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.in_one_test import in_one_test

SYSTEM = TextMessage(id="s", role="system", content="one two three four")
QUESTION = TextMessage(id="q", role="user", content="What now?")


def say(id: str, words: int = 20, *, by_user: bool = False) -> TextMessage:
    return TextMessage(id=id, role="user" if by_user else "assistant", content="word " * words)


def call(id: str, words: int = 20) -> list[Message]:
    return [
        ActionExecutionMessage(id=id, name="look", arguments="{}"),
        ResultMessage(id=f"r{id}", call_id=id, name="look", result="word " * words),
    ]


def fit(budget: int, *messages: Message, rules: str = "newest") -> Sequence[Message]:
    window = BudgetWindow(budget, rules=rules, name="a")
    return window.fit(ChatRequest(messages=[SYSTEM, *messages])).messages


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def test_a_request_that_fits_stays_as_it_is() -> None:
    request = ChatRequest(messages=[SYSTEM, say("m"), QUESTION])
    assert BudgetWindow(1000).fit(request) is request


def test_the_newest_of_what_is_older_is_there_with_the_question() -> None:
    talk = [say(f"m{at}", by_user=at % 2 == 0) for at in range(10)]
    assert ids(fit(120, *talk, QUESTION)) == ["s", "m7", "m8", "m9", "q"]


def test_a_call_is_there_with_its_results_or_not_at_all() -> None:
    messages = fit(90, *call("c1"), *call("c2"), say("m1"), QUESTION)
    assert ids(messages) in (["s", "c2", "rc2", "m1", "q"], ["s", "m1", "q"])
    assert sum(isinstance(one, ResultMessage) for one in messages) == sum(
        isinstance(one, ActionExecutionMessage) for one in messages
    )


def test_results_of_one_turn_share_what_results_may_have() -> None:
    calls = [one for at in range(2) for one in call(f"c{at}", 500)]
    turn = [calls[0], calls[2], calls[1], calls[3]]
    messages = fit(1010, QUESTION, *turn)
    results = [count_tokens(one.result) for one in messages if isinstance(one, ResultMessage)]
    assert all(190 <= count <= 200 for count in results)


def test_the_question_and_all_after_it_stay_and_are_cut() -> None:
    calls = [one for at in range(4) for one in call(f"c{at}", 200)]
    messages = fit(200, say("m0"), QUESTION, *calls)
    assert ids(messages) == ["s", "q", *ids(calls)]
    total = sum(count_tokens(one.result) for one in messages if isinstance(one, ResultMessage))
    assert total < 200


def test_a_turn_of_more_messages_than_tokens_ends_with_the_newest() -> None:
    calls = [one for at in range(60) for one in call(f"c{at}", 3)]
    messages = fit(60, QUESTION, *calls)
    assert ids(messages)[:2] == ["s", "q"]
    assert ids(messages)[-1] == "rc59"
    assert len(messages) < 60


def test_long_questions_arguments_and_results_are_cut() -> None:
    question = say("q", 400, by_user=True)
    arguments = ActionExecutionMessage(id="c", name="look", arguments='{"a":"' + "x " * 900 + '"}')
    result = ResultMessage(id="r", call_id="c", name="look", result="word " * 100_000)
    messages = fit(300, question, arguments, result)
    assert ids(messages) == ["s", "q", "c", "r"]
    counts = [count_tokens(one.content) for one in messages if isinstance(one, TextMessage)]
    assert counts[1] < 200


def test_images_thoughts_and_states_have_their_place() -> None:
    talk: list[Message] = [
        ImageMessage(id="i", role="user", format="png", bytes="AAAA"),
        ReasoningMessage(id="t", content="word " * 20),
        say("m"),
        *call("c", 2),
        AgentStateMessage(id="a", agent="a", state={}, running=False),
        QUESTION,
    ]
    assert ids(fit(90, *talk)) == ["s", "t", "m", "c", "rc", "a", "q"]
    assert ids(fit(10_000, *talk))[1:] == ids(talk)


def test_without_a_question_the_last_turn_stays() -> None:
    assert ids(fit(40, say("m0"), say("m1"), *call("c", 4)))[-2:] == ["c", "rc"]


@in_one_test(
    ("rules", "expected"),
    [
        ("copilot-ld-2025-11", ["s", "m0", "q"]),
        ("copilot-ld-2026-01", ["s", "m8", "m9", "q"]),
    ],
)
def test_the_rules_of_both_eras_choose_what_is_older(rules: str, expected: list[str]) -> None:
    talk = [say(f"m{at}") for at in range(10)]
    assert ids(fit(88, *talk, QUESTION, rules=rules)) == expected


def test_tools_and_the_answer_count() -> None:
    tool = Action(name="look", description="word " * 100)
    request = ChatRequest(messages=[SYSTEM, QUESTION], actions=[tool])
    with pytest.raises(LimitExceeded, match=r"its tools 1[0-9][0-9], and its answer may have 50"):
        BudgetWindow(100).fit(
            ChatRequest(
                messages=request.messages, actions=[tool], parameters=Parameters(max_tokens=90)
            )
        )


def test_shares_are_an_option_and_rules_have_names() -> None:
    window = BudgetWindow(1000, allocation=Allocation(tools=0.1, context=0.1, conversation=0.8))
    request = ChatRequest(messages=[QUESTION, *call("c", 500)])
    result = window.fit(request).messages[-1]
    assert isinstance(result, ResultMessage)
    assert count_tokens(result.result) <= 100
    with pytest.raises(UnknownName):
        BudgetWindow(1000, rules="oldest")


def test_a_picture_in_a_result_counts_as_a_picture_and_is_never_cut() -> None:
    picture = "iVBORw0KGgo" + "A" * 400_001
    block = f'{{"type":"image","data":"{picture}","mimeType":"image/png"}}'
    came = ResultMessage(
        id="r",
        call_id="c",
        name="look",
        result=f'{{"content":[{block},{{"type":"text","text":"Rome"}}]}}',
    )
    talk = [QUESTION, ActionExecutionMessage(id="c", name="look", arguments="{}"), came]

    shown, left_out = fit(20_000, *talk)[-1], fit(500, *talk)[-1]

    assert isinstance(shown, ResultMessage)
    assert isinstance(left_out, ResultMessage)
    assert (shown.result, len(shown.parts)) == ("Rome", 2)
    assert (left_out.result, len(left_out.parts)) == (
        "[Its files are left out: they do not fit into the budget.]\nRome",
        0,
    )
