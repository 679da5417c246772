"""What of a memory stands in a window, by the rules that are the default."""

import pytest

from copilot_runtime.base.errors import Misuse, UnknownName
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.memory import RULES, Allocation, Window
from copilot_runtime.extensions.knowledge.memory.window import HistoryRules, find_rules
from tests.in_one_test import in_one_test

C = "common.Conversation.c"
ALL = Allocation(0, 0, 1)
CONTEXT = Allocation(0, 1, 0)
NEWEST = RULES["newest"]


def message(name: str, tokens: int | None = 10, parent: str = C) -> Identifier:
    return Identifier("common.Message", name, parent, tokens=tokens)


def result(name: str, tokens: int = 10) -> Identifier:
    return Identifier("tool.ToolCallMessage", name, C, tokens=tokens)


def passage(name: str, tokens: int, score: float | None = None) -> Identifier:
    return Identifier("common.Message", name, tokens=tokens, score=score)


def tool(name: str, tokens: int) -> Identifier:
    return Identifier("tool.ToolFunction", name, tokens=tokens)


def sizes(window: Window) -> dict[str, int | None]:
    return {it.name: it.tokens for it in (*window.tools, *window.context, *window.conversation)}


def test_results_and_tasks_of_a_conversation_belong_to_it() -> None:  # S001
    task = Identifier("plan.Task", "k", C, tokens=5)
    below = Identifier("plan.Task", "l", f"{C}/common.Message.m1", tokens=5)
    upload = Identifier("file.Upload", "u", C, tokens=5)
    chunk = Identifier("common.Chunk", "p1", f"{C}/file.Upload.u", tokens=5)
    parts = NEWEST.split(
        [tool("t", 1), message("m1"), task, below, result("r"), passage("d", 1), upload, chunk]
    )

    assert [it.name for it in parts.tools] == ["t"]
    assert [it.name for it in parts.conversation] == ["m1", "k", "l", "r"]
    assert [it.name for it in parts.context] == ["d", "u", "p1"]


def test_the_conversation_of_a_user_is_a_conversation_by_all_rules() -> None:
    mine = message("m", parent="common.User.ann/common.Conversation.t1")

    for name in ("newest", "copilot-ld-2025-11"):
        assert RULES[name].split([mine]).conversation == [mine]


def test_what_is_too_large_does_not_block_what_comes_after_it() -> None:  # S004
    passages = [passage("a", 10, 0.2), passage("b", 20, 0.9), passage("c", 5, 0.5)]
    window = NEWEST.select(passages, 19, CONTEXT)

    assert sizes(window) == {"c": 5, "a": 10}
    assert [it.name for it in window.left_out] == ["b"]


def test_a_large_passage_is_trimmed_and_leaves_room_for_others() -> None:
    passages = [passage("large", 500, 0.9), passage("small", 30, 0.8), passage("other", 30, 0.1)]
    window = NEWEST.select(passages, 100, CONTEXT)

    assert sizes(window) == {"large": 50, "small": 30}
    assert window.trimmed == {"common.Message.large"}
    assert window.tokens == 80


def test_the_newest_passages_stay_where_there_are_no_scores() -> None:  # S005
    passages = [passage("old", 10), passage("mid", 10), passage("new", 10)]

    assert [it.name for it in NEWEST.select(passages, 20, CONTEXT).context] == ["mid", "new"]


def test_the_best_passages_come_before_those_without_a_score() -> None:
    passages = [passage("x", 1), passage("good", 1, 0.5), passage("y", 1), passage("best", 1, 0.9)]
    window = NEWEST.select(passages, 100, CONTEXT)

    assert [it.name for it in window.context] == ["best", "good", "x", "y"]


def test_the_newest_messages_stay() -> None:
    window = NEWEST.select([message(f"m{at}") for at in range(10)], 35, ALL)

    assert [it.name for it in window.conversation] == ["m7", "m8", "m9"]


@in_one_test("budget", range(0, 130, 7))
def test_a_call_is_never_cut_from_its_results(budget: int) -> None:
    conversation = [
        *(message("q1"), message("call1"), result("r1", 30), result("r2", 5), message("a1", 8)),
        *(message("q2"), message("call2"), result("r3", 20), message("a2", 4)),
    ]
    names = [it.name for it in NEWEST.select(conversation, budget, ALL).conversation]

    assert ("call1" in names) == ("r1" in names) == ("r2" in names)
    assert ("call2" in names) == ("r3" in names)
    assert names == [it.name for it in conversation if it.name in names]
    assert NEWEST.select(conversation, budget, ALL).tokens <= budget


def test_results_without_their_call_are_dropped() -> None:
    window = NEWEST.select([result("r0"), message("m1")], 100, ALL)

    assert [it.name for it in window.conversation] == ["m1"]


def test_one_huge_message_does_not_cut_off_what_is_older() -> None:
    conversation = [message("m1"), message("huge", 10_000), message("m2")]

    assert sizes(NEWEST.select(conversation, 100, ALL)) == {"m1": 10, "huge": 45, "m2": 10}
    assert sizes(RULES["copilot-ld-2026-01"].select(conversation, 100, ALL)) == {"m2": 10}


def test_the_newest_message_is_there_even_if_it_fills_the_window() -> None:
    window = NEWEST.select([message("m1"), message("huge", 10_000)], 100, ALL)

    assert sizes(window) == {"huge": 100}
    assert window.trimmed == {f"{C}/common.Message.huge"}


def test_only_the_large_results_of_a_call_are_trimmed() -> None:
    call = [message("call", 10), result("r1", 400), result("r2", 20), result("r3", 300)]
    window = NEWEST.select(call, 100, ALL)

    assert sizes(window) == {"call": 10, "r1": 35, "r2": 20, "r3": 35}
    assert {uri.rpartition(".")[2] for uri in window.trimmed} == {"r1", "r3"}


def test_a_window_that_is_too_small_for_the_newest_has_no_older_messages() -> None:
    call = [message("m1", 1), message("call", 10), *(result(f"r{at}") for at in range(9))]

    assert NEWEST.select(call, 5, ALL).conversation == ()
    assert NEWEST.select(call, 0, ALL).conversation == ()
    assert NEWEST.select(call, -5, ALL).conversation == ()


def test_an_old_message_of_which_hardly_anything_would_be_left_is_left_out() -> None:
    window = NEWEST.select([message("m1", 5), message("huge", 900), message("m2")], 30, ALL)

    assert sizes(window) == {"m1": 5, "m2": 10}
    assert [it.name for it in window.left_out] == ["huge"]


def test_a_tool_is_there_as_a_whole_or_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    window = NEWEST.select([tool("big", 50), tool("small", 10)], 100, Allocation(0.2, 0, 0))

    assert sizes(window) == {"small": 10}
    assert "no room for these tools in a memory window: big." in caplog.text


def test_what_one_part_leaves_over_the_next_one_gets() -> None:
    identifiers = [tool("t", 5), passage("d", 20), *(message(f"m{at}") for at in range(9))]
    window = NEWEST.select(identifiers, 100, Allocation(0.2, 0.3, 0.5))

    assert window.tokens == 95
    assert [it.name for it in window.conversation] == [f"m{at}" for at in range(2, 9)]


@in_one_test("rules", RULES)
def test_an_identifier_without_tokens_is_refused_by_name(rules: str) -> None:
    with pytest.raises(Misuse, match=r"Identifier missing tokens field: .*Message\.m1"):
        RULES[rules].select([message("m1", None)], 100, Allocation())


@in_one_test("shares", [(0.5, 0.5, 0.5), (-0.1, 0.5, 0.5), (2, 0, 0)])
def test_shares_that_cannot_be_are_refused(shares: tuple[float, float, float]) -> None:
    with pytest.raises(Misuse, match="cannot be shared"):
        NEWEST.select([], 100, Allocation(*shares))


@in_one_test(
    ("budget", "shares"), [(0, (0.1, 0.8, 0.1)), (100, (0, 0.8, 0.1)), (100, (0.2, 0.5, 0))]
)
def test_shares_of_november_must_all_be_there(
    budget: int, shares: tuple[float, float, float]
) -> None:
    with pytest.raises(Misuse, match="Budget allocation is required: tools, context, conversation"):
        RULES["copilot-ld-2025-11"].select([], budget, Allocation(*shares))


def test_rules_of_november_lose_results_and_keep_the_oldest() -> None:
    identifiers = [tool("t", 5), message("m1"), result("r"), message("m2"), passage("d", 10)]
    window = RULES["copilot-ld-2025-11"].select(identifiers, 100, Allocation(0.1, 0.8, 0.1))

    assert sizes(window) == {"t": 5, "d": 10, "m1": 10}


def test_rules_of_january_drop_results_whose_call_is_older_than_the_window() -> None:
    history = [message("q"), message("call"), result("r1"), result("r2"), message("a")]

    for budget, names in ((30, ["a"]), (40, ["call", "r1", "r2", "a"]), (0, [])):
        window = HistoryRules().select(history, budget, ALL)
        assert [it.name for it in window.conversation] == names
    assert HistoryRules().select([result("r")], 50, ALL).conversation == ()


def test_rules_of_november_put_the_best_first_and_leave_others_where_they_are() -> None:
    passages = [passage("x", 1), passage("a", 1, 0.1), passage("b", 1, 0.9), passage("c", 1, 0.9)]
    window = RULES["copilot-ld-2025-11"].select(passages, 100, Allocation(0.1, 0.1, 0.1))

    assert [it.name for it in window.context] == ["x", "b", "c", "a"]


def test_a_window_of_nothing_is_empty() -> None:
    for name in ("newest", "copilot-ld-2026-01"):
        assert RULES[name].select([], 100, Allocation()) == Window()


def test_an_unknown_name_of_rules_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No memory rules named 'news'.*Did you mean 'newest'"):
        find_rules("news")
