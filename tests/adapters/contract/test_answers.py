"""What every adapter makes of an answer, whoever gives it."""

import asyncio
import json
from dataclasses import replace

import pytest

from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.api.events import Event, TextMessageContent, TextMessageStart
from copilot_runtime.api.messages import ActionExecutionMessage, ResultMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.event_order.characters import CharacterJoiner
from tests.adapters.asking import (
    HELLO,
    answer,
    answer_of,
    asking,
    calls_in,
    text_in,
    thought_in,
    types_of,
    usage_in,
)
from tests.adapters.contract.fakes import (
    CallArgs,
    CallEnd,
    CallStart,
    Fake,
    NoDone,
    Ping,
    Refuse,
    Say,
    Split,
    Step,
    Stop,
    Think,
    Tokens,
    Waits,
    needs,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ADAPTER_OF = {"openai_responses": "openai"}
"""Lines of `UNSUPPORTED` that are no adapters of their own → whose they are."""

RED = '{"color":"red"}'
TEXT = ["text_message_start", "text_message_content", "text_message_end"]
THOUGHT = ["reasoning_start", "reasoning_content", "reasoning_end"]
CALL = ["action_execution_start", "action_execution_args", "action_execution_end"]


def calls(id: str, *pieces: str, name: str = "setColor") -> list[Step]:
    """Return the steps of one call."""
    return [CallStart(id, name), *(CallArgs(id, piece) for piece in pieces), CallEnd(id)]


async def test_an_answer_has_the_id_that_the_request_gives_it(fake: Fake):
    fake.plays(Say("Hello"), Stop())
    events = await answer(fake, replace(asking(), message_id="mine"))
    starts = [event for event in events if isinstance(event, TextMessageStart)]
    assert [start.message_id for start in starts] == ["mine"]


async def test_a_text_in_pieces_is_one_message(fake: Fake):
    fake.plays(Say("Hel"), Say("lo é 🙂"), Stop())
    events = await answer(fake)
    assert (text_in(events), types_of(events)[:3]) == ("Hello é 🙂", TEXT)


async def test_each_piece_arrives_as_it_is_said(fake: Fake):
    gates = [asyncio.Event() for _ in range(3)]
    fake.plays(Say("a"), Waits(gates[0]), Say("b"), Waits(gates[1]), Say("c"), Stop())
    heard: list[str] = []

    async for event in fake.adapter().stream(asking()):
        if isinstance(event, TextMessageContent):
            gates[len(heard)].set()  # only now may the next piece be said
            heard.append(event.content)

    assert heard == ["a", "b", "c"]


async def test_empty_pieces_are_nothing(fake: Fake):
    fake.plays(Say(""), Say("Hi"), Say(""), Stop())
    pieces = [e.content for e in await answer(fake) if isinstance(e, TextMessageContent)]
    assert pieces == ["Hi"]


async def test_signs_of_life_are_nothing(fake: Fake):
    needs(fake, "pings")
    fake.plays(Ping(), Say("Hel"), Ping(), Say("lo"), Stop(), Ping())
    assert text_in(await answer(fake)) == "Hello"


@in_one_test("bytewise", [False, True], ids=["in halves", "byte by byte"])
async def test_a_frame_in_several_blocks_is_the_same(fake: Fake, bytewise: bool):
    needs(fake, "http")
    fake.plays(Say("Hel"), Split(bytewise), Say("lo é 🙂"), Split(bytewise), Stop())
    assert text_in(await answer(fake)) == "Hello é 🙂"


async def test_half_a_character_is_readable(fake: Fake):
    needs(fake, "half_characters")
    fake.plays(Say("a\ud83d"), Say("b"), Stop())
    assert text_in(await answer(fake)) == "a\N{REPLACEMENT CHARACTER}b"


def join_halves(events: list[Event]) -> list[Event]:
    joiner = CharacterJoiner()
    return [whole for event in events for whole in joiner.feed(event)]


async def test_the_halves_of_a_character_are_joined(fake: Fake):
    needs(fake, "half_characters")
    fake.plays(Say("a\ud83d"), Say("\ude00b"), Say("c\ud83d"), Stop())
    events = join_halves(await answer(fake))
    assert text_in(events) == "a\N{GRINNING FACE}bc\N{REPLACEMENT CHARACTER}"


async def test_the_halves_of_characters_in_two_calls_are_not_mixed(fake: Fake):
    needs(fake, "half_characters", "calls", "interleaved_calls")
    fake.plays(
        CallStart("call_1", "setColor"),
        CallArgs("call_1", '{"color":"\ud83d'),
        CallStart("call_2", "setSize"),
        CallArgs("call_2", '{"size":"\ude00'),
        CallArgs("call_1", '\ude00"}'),
        CallArgs("call_2", '"}'),
        CallEnd("call_1"),
        CallEnd("call_2"),
        Stop("tool_calls"),
    )
    events = join_halves(await answer(fake))
    assert [arguments for _, arguments in calls_in(events).values()] == [
        '{"color":"\N{GRINNING FACE}"}',
        '{"size":"\N{REPLACEMENT CHARACTER}"}',
    ]


async def test_a_missing_last_event_takes_nothing_away(fake: Fake):
    needs(fake, "end_marker")
    fake.plays(Say("Hi"), NoDone(), Stop())
    events = await answer(fake)
    assert (text_in(events), types_of(events)[:3]) == ("Hi", TEXT)


async def test_a_long_text_arrives_whole(fake: Fake):
    pieces = [f"{number} é🙂 " for number in range(500)]
    fake.plays(*(Say(piece) for piece in pieces), Stop())
    assert text_in(await answer(fake)) == "".join(pieces)


async def test_a_thought_comes_before_its_answer(fake: Fake):
    needs(fake, "reasoning")
    fake.plays(Think("Hm"), Think("m."), Say("Yes."), Stop())
    events = await answer(fake)
    assert (thought_in(events), text_in(events)) == ("Hmm.", "Yes.")
    kinds = [kind for kind in types_of(events) if kind in (*TEXT, *THOUGHT)]
    assert kinds == [*THOUGHT, *TEXT]


async def test_a_thought_comes_before_its_call(fake: Fake):
    needs(fake, "reasoning", "calls")
    fake.plays(Think("Hmm.", "c2ln"), *calls("call_1", RED), Stop("tool_calls"))
    events = await answer(fake)
    assert thought_in(events) == "Hmm."
    kinds = [kind for kind in types_of(events) if kind in (*CALL, *THOUGHT)]
    assert kinds == [*THOUGHT, *CALL]


async def test_a_call_has_its_name_and_arguments(fake: Fake):
    needs(fake, "calls")
    fake.plays(*calls("call_1", RED), Stop("tool_calls"))
    (call,) = calls_in(await answer(fake)).values()
    assert (call[0], json.loads(call[1])) == ("setColor", {"color": "red"})


async def test_a_call_keeps_the_id_it_was_given(fake: Fake):
    needs(fake, "calls", "answer_ids")
    fake.plays(*calls("call_1", RED), Stop("tool_calls"))
    assert list(calls_in(await answer(fake))) == ["call_1"]


async def test_a_call_without_arguments_has_an_empty_object(fake: Fake):
    needs(fake, "calls")
    fake.plays(*calls("call_1", name="setSize"), Stop("tool_calls"))
    (call,) = calls_in(await answer(fake)).values()
    assert (call[0], json.loads(call[1] or "{}")) == ("setSize", {})


async def test_arguments_arrive_while_they_are_written(fake: Fake):
    needs(fake, "calls", "arguments_in_pieces")
    gate = asyncio.Event()
    pieces = [CallArgs("call_1", '{"color":'), Waits(gate), CallArgs("call_1", '"red"}')]
    fake.plays(CallStart("call_1", "setColor"), *pieces, CallEnd("call_1"), Stop("tool_calls"))
    written: list[str] = []

    async for event in fake.adapter().stream(asking()):
        if event.type == "action_execution_args":
            gate.set()  # only now may the second piece be written
            written.append(event.delta)

    assert (len(written), "".join(written)) == (2, RED)


async def test_large_arguments_in_small_pieces_arrive_whole(fake: Fake):
    needs(fake, "calls")
    arguments = json.dumps({"color": 'é🙂\\"{}' * 5_000}, ensure_ascii=False)
    pieces = [arguments[at : at + 97] for at in range(0, len(arguments), 97)]
    fake.plays(*calls("call_1", *pieces), Stop("tool_calls"))
    (call,) = calls_in(await answer(fake)).values()
    assert json.loads(call[1]) == json.loads(arguments)


async def test_two_calls_one_after_the_other_are_two(fake: Fake):
    needs(fake, "calls", "parallel_calls")
    one, two = calls("call_1", RED), calls("call_2", '{"size":', "7}", name="setSize")
    fake.plays(*one, *two, Stop("tool_calls"))
    found = calls_in(await answer(fake))
    assert [(name, json.loads(arguments)) for name, arguments in found.values()] == [
        ("setColor", {"color": "red"}),
        ("setSize", {"size": 7}),
    ]


async def test_two_calls_of_the_same_action_are_two(fake: Fake):
    needs(fake, "calls", "parallel_calls")
    fake.plays(*calls("call_1", RED), *calls("call_2", RED), Stop("tool_calls"))
    found = list(calls_in(await answer(fake)).values())
    assert [(name, json.loads(arguments)) for name, arguments in found] == [
        ("setColor", {"color": "red"})
    ] * 2


async def test_interleaved_calls_arrive_whole(fake: Fake):
    needs(fake, "calls", "interleaved_calls")
    fake.plays(
        CallStart("call_1", "setColor"),
        CallArgs("call_1", '{"color":'),
        CallStart("call_2", "setSize"),
        CallArgs("call_2", '{"size"'),
        CallArgs("call_1", '"red"}'),
        CallEnd("call_1"),
        CallArgs("call_2", ":7}"),
        CallEnd("call_2"),
        Stop("tool_calls"),
    )
    assert sorted(calls_in(await answer(fake)).values()) == [
        ("setColor", RED),
        ("setSize", '{"size":7}'),
    ]


async def test_a_text_and_a_call_are_both_there(fake: Fake):
    needs(fake, "calls")
    fake.plays(Say("Sure."), *calls("call_1", RED), Stop("tool_calls"))
    events = await answer(fake)
    assert (text_in(events), len(calls_in(events))) == ("Sure.", 1)
    assert [kind for kind in types_of(events) if kind in (*TEXT, *CALL)] == [*TEXT, *CALL]


async def test_a_call_of_an_action_nobody_offered_arrives_too(fake: Fake):
    needs(fake, "calls")
    fake.plays(*calls("call_1", RED, name="noSuch"), Stop("tool_calls"))
    (call,) = calls_in(await answer(fake)).values()
    assert (call[0], json.loads(call[1])) == ("noSuch", {"color": "red"})


async def test_tokens_are_counted(fake: Fake):
    needs(fake, "usage")
    fake.plays(Say("Yes."), Tokens(input=90, output=20), Stop())
    usage = usage_in(await answer(fake))
    assert (usage.input_tokens, usage.output_tokens) == (90, 20)
    assert usage.model
    assert usage.provider == ADAPTER_OF.get(fake.name, fake.name)
    assert usage.provider in ADAPTERS


async def test_cached_tokens_are_a_part_of_those_that_went_in(fake: Fake):
    needs(fake, "usage", "cached_tokens")
    fake.plays(Say("Yes."), Tokens(input=90, output=20, cached=40), Stop())
    usage = usage_in(await answer(fake))
    assert (usage.input_tokens, usage.cached_tokens) == (90, 40)


async def test_tokens_of_reasoning_are_a_part_of_those_that_came_out(fake: Fake):
    needs(fake, "usage", "reasoning_tokens")
    fake.plays(Think("Hm", "c2ln"), Say("Yes."), Tokens(input=9, output=20, reasoning=10), Stop())
    usage = usage_in(await answer(fake))
    assert (usage.output_tokens, usage.reasoning_tokens) == (20, 10)


@in_one_test("reason", ["stop", "length"])
async def test_why_the_model_stopped_is_told(fake: Fake, reason: str):
    needs(fake, "usage", "stop_reasons")
    fake.plays(Say("Once upon"), Tokens(9, 2), Stop(reason))
    assert usage_in(await answer(fake)).stop_reason == reason


async def test_an_answer_that_calls_stopped_for_its_calls(fake: Fake):
    needs(fake, "usage", "stop_reasons", "calls")
    fake.plays(*calls("call_1", RED), Tokens(9, 2), Stop("tool_calls"))
    assert usage_in(await answer(fake)).stop_reason == "tool_calls"


async def test_a_refusal_is_text_and_told_as_one(fake: Fake):
    needs(fake, "refusals", "usage")
    fake.plays(Refuse("I can't"), Refuse(" do that."), Tokens(9, 2), Stop("refusal"))
    events = await answer(fake)
    assert text_in(events) == "I can't do that."
    assert usage_in(events).stop_reason == "refusal"


async def test_two_answers_at_once_do_not_mix(fake: Fake):
    gate = asyncio.Event()
    fake.plays(Say("one "), Waits(gate), Say("one"), Stop())
    fake.plays(Say("two "), Say("two"), Stop())
    adapter = fake.adapter()

    first = asyncio.create_task(answer_of(adapter))
    await fake.until_asked(1)
    second = await answer_of(adapter)
    gate.set()

    assert (text_in(await first), text_in(second)) == ("one one", "two two")


async def test_ids_are_new_in_each_answer(fake: Fake):
    fake.plays(Say("Hi"), Stop())
    adapter = fake.adapter()
    first = await answer_of(adapter)
    again = TextMessage(id="u2", role="user", content="Again")
    second = await answer_of(adapter, asking(HELLO, *fold_messages(first), again))

    ids = [event.message_id for event in [*first, *second] if event.type == "text_message_start"]
    assert len(set(ids)) == 2


async def test_an_answer_to_a_result_is_another_message_than_the_call(fake: Fake):
    needs(fake, "calls")
    fake.plays(*calls("call_1", RED), Stop("tool_calls"))
    fake.plays(Say("Done."), Stop())
    adapter = fake.adapter()
    (call,) = fold_messages(await answer_of(adapter))
    assert isinstance(call, ActionExecutionMessage)
    result = ResultMessage(id="r1", call_id=call.id, name=call.name, result="done")

    (text,) = fold_messages(await answer_of(adapter, asking(HELLO, call, result)))

    assert text.id not in (call.id, call.parent_id)
