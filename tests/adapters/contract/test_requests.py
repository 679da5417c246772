"""What every adapter asks of its provider, in common words."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime.adapters.capabilities import CAPABILITIES, UNDOCUMENTED, UNSUPPORTED
from copilot_runtime.adapters.history import NO_RESULT
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from tests.adapters.asking import (
    COLOR,
    HELLO,
    SET_COLOR,
    SET_SIZE,
    answer,
    answer_of,
    asking,
    calls_in,
    failure,
    text_in,
    warnings_in,
)
from tests.adapters.contract.fakes import (
    FAKES,
    MODEL,
    Asked,
    CallArgs,
    CallEnd,
    CallStart,
    Fake,
    Say,
    Stop,
    Think,
    needs,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

PNG, PDF = "iVBORw0KGgo=", "JVBERi0xLjQ="
CALL = ActionExecutionMessage(id="call_1", name="setColor", arguments='{"color":"red"}')
RESULT = ResultMessage(id="r1", call_id="call_1", name="setColor", result="done")
WISHES: list[tuple[str, Any]] = [
    ("temperature", 0.3),
    ("temperature", 0.0),
    ("top_p", 0.5),
    ("max_tokens", 5_000),
    ("stop", ["END", "STOP"]),
    ("seed", 7),
    ("seed", 0),
    ("frequency_penalty", 0.5),
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.5),
    ("reasoning_effort", "low"),
    ("parallel_tool_calls", False),
]
WANTED: dict[str, Any] = {
    **{name: value for name, value in WISHES if value},
    "parallel_tool_calls": False,
    "response_schema": COLOR,
}


def text(content: str, role: Any = "user", *, id: str = "") -> TextMessage:
    return TextMessage(id=id or f"{role}-{content[:9]}", role=role, content=content)


def lacked(fake: Fake) -> list[str]:
    return [name for name in WANTED if name in UNSUPPORTED.get(fake.name, {})]


async def asked(fake: Fake, request: ChatRequest, **options: Any) -> Asked:
    """Return what the provider is asked."""
    fake.plays(Say("Hi"), Stop())
    await answer(fake, request, **options)
    return fake.asked[-1]


async def messages(fake: Fake, *said: Message, **options: Any) -> list[tuple[str, str]]:
    """Return role and text of what reaches the provider."""
    heard = (await asked(fake, asking(*said), **options)).messages
    return [(one.role, one.text) for one in heard]


async def test_the_model_of_the_adapter_is_asked(fake: Fake):
    assert (await asked(fake, asking())).model == MODEL


async def test_the_model_that_the_client_wants_is_asked(fake: Fake):
    assert (await asked(fake, asking(model="another-model"))).model == "another-model"


@in_one_test(("name", "value"), WISHES)
async def test_a_wish_reaches_the_model(fake: Fake, name: str, value: Any):
    needs(fake, name)
    assert (await asked(fake, asking(**{name: value}))).parameters[name] == value


async def test_what_nobody_asks_for_is_not_sent(fake: Fake):
    sent = (await asked(fake, asking())).parameters
    assert {name for name in sent if name != "max_tokens"} == set()


@in_one_test("choice", ["auto", "none", "required"])
async def test_a_choice_of_tools_reaches_the_model(fake: Fake, choice: str):
    needs(fake, "calls", f"tool_choice_{choice}")
    sent = await asked(fake, asking(tool_choice=choice))
    if choice == "none" and not sent.tools:
        return  # without tools, a model cannot but call none
    assert sent.parameters.get("tool_choice", "auto") == choice  # without a word, it may


async def test_a_tool_by_its_name_reaches_the_model(fake: Fake):
    needs(fake, "calls", "tool_choice_function")
    sent = await asked(fake, asking(tool_choice="function", tool_choice_name="setSize"))
    assert sent.parameters["tool_choice"] == "function"
    assert sent.parameters["tool_choice_name"] == "setSize"


async def test_a_choice_of_a_tool_needs_its_name(fake: Fake):
    needs(fake, "calls", "tool_choice_function")
    _, error = await failure(fake, asking(tool_choice="function"))
    assert isinstance(error, Misuse)


@in_one_test("name", ["files.read", "2fa", "größer", "a b", "x" * 200])
async def test_a_name_that_no_provider_takes_has_a_stand_in(fake: Fake, name: str):
    needs(fake, "calls", "history")
    call = ActionExecutionMessage(id="c1", name=name, arguments="{}")
    request = replace(asking(HELLO, call), actions=[SET_COLOR, Action(name=name)])
    sent = await asked(fake, request)
    known = sent.tools[1].name
    assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_-]{0,63}", known)
    assert [heard.call[1] for heard in sent.messages if heard.call] == [known]

    fake.plays(CallStart("c3", known), CallArgs("c3", "{}"), CallEnd("c3"), Stop("tool_calls"))
    ((called, _),) = calls_in(await answer(fake, request)).values()
    assert called == name


async def test_a_schema_of_the_answer_reaches_the_model(fake: Fake):
    needs(fake, "response_schema")
    sent = await asked(fake, asking(response_schema=COLOR, response_name="paint"))
    assert list(sent.parameters["response_schema"]["properties"]) == ["color"]


async def test_a_wish_that_cannot_be_fulfilled_is_told_before_the_answer(fake: Fake):
    fake.plays(Say("Hi"), Stop())
    for name in lacked(fake):
        events = await answer(fake, asking(**{name: WANTED[name]}))
        assert (warnings_in(events[:1]), text_in(events)) == ([name], "Hi")
        assert name not in fake.asked[-1].parameters


async def test_a_wish_that_cannot_be_fulfilled_is_refused_by_setting(fake: Fake):
    fake.plays(Say("Hi"), Stop())
    for name in lacked(fake):
        request = asking(**{name: WANTED[name]})
        seen, error = await failure(fake, request, unsupported="refuse")
        assert (seen, type(error), fake.asked) == ([], ConfigurationFailed, [])
        assert name in error.message


async def test_actions_are_offered_with_their_schemas(fake: Fake):
    needs(fake, "calls")
    tools = (await asked(fake, asking())).tools
    assert [(tool.name, tool.description) for tool in tools] == [
        ("setColor", "Sets the color."),
        ("setSize", "Sets the size."),
    ]
    assert list(tools[0].parameters["properties"]) == ["color"]


async def test_hidden_actions_are_not_offered_and_equal_names_once(fake: Fake):
    needs(fake, "calls")
    actions = [
        SET_COLOR,
        SET_SIZE,
        Action(name="setColor", description="Another."),
        Action(name="hidden", available="remote"),
        Action(name="off", available="disabled"),
    ]
    sent = await asked(fake, ChatRequest(messages=[HELLO], actions=actions))
    assert [tool.name for tool in sent.tools] == ["setColor", "setSize"]


async def test_without_actions_nothing_is_said_of_tools(fake: Fake):
    wishes = Parameters(tool_choice="required", parallel_tool_calls=False)
    sent = await asked(fake, ChatRequest(messages=[HELLO], parameters=wishes))
    assert (sent.tools, sent.parameters.get("tool_choice")) == ([], None)


async def test_instructions_come_from_the_system_and_from_the_developer(fake: Fake):
    told = [text("Be kind.", "system"), text("Be brief.", "developer"), HELLO]
    heard = await messages(fake, *told)
    assert heard[-1] == ("user", "Hello")
    instructions = "\n".join(text for role, text in heard if role == "instructions")
    assert instructions.index("Be kind.") < instructions.index("Be brief.")


async def test_a_conversation_keeps_its_order(fake: Fake):
    said = [text("One"), text("Two", "assistant"), text("Three")]
    assert await messages(fake, *said) == [
        ("user", "One"),
        ("assistant", "Two"),
        ("user", "Three"),
    ]


async def test_a_call_and_its_result_come_back(fake: Fake):
    needs(fake, "calls", "history")
    heard = (await asked(fake, asking(HELLO, CALL, RESULT))).messages
    calls = [one.call for one in heard if one.call]
    results = [(one.result_of, one.text) for one in heard if one.result_of]
    assert [call[1:] for call in calls] == [("setColor", {"color": "red"})]
    assert results == [(calls[0][0], "done")]


async def test_two_calls_find_their_results(fake: Fake):
    needs(fake, "calls", "history")
    other = ActionExecutionMessage(id="call_2", name="setSize", arguments='{"size":7}')
    second = ResultMessage(id="r2", call_id="call_2", name="setSize", result="sized")
    heard = (await asked(fake, asking(HELLO, CALL, other, second, RESULT))).messages
    calls = {one.call[0]: one.call[1] for one in heard if one.call}
    results = {calls[one.result_of]: one.text for one in heard if one.result_of}
    assert results == {"setColor": "done", "setSize": "sized"}


async def test_a_call_without_a_result_gets_one(fake: Fake):
    needs(fake, "calls", "history")
    heard = (await asked(fake, asking(HELLO, CALL, text("And now?")))).messages
    assert [one.text for one in heard if one.result_of] == [NO_RESULT]


async def test_a_result_without_a_call_is_left_out(fake: Fake):
    heard = (await asked(fake, asking(HELLO, RESULT, text("And now?")))).messages
    assert [one for one in heard if one.result_of] == []


async def test_a_second_result_is_left_out(fake: Fake):
    needs(fake, "calls", "history")
    again = ResultMessage(id="r2", call_id="call_1", name="setColor", result="again")
    heard = (await asked(fake, asking(HELLO, CALL, RESULT, again))).messages
    assert [one.text for one in heard if one.result_of] == ["done"]


async def test_empty_texts_are_left_out(fake: Fake):
    said = [text(" ", "system"), HELLO, text("", "assistant"), text("And now?")]
    assert "".join(text for _, text in await messages(fake, *said)) == "HelloAnd now?"


async def test_arguments_that_are_no_object_are_wrapped(fake: Fake):
    needs(fake, "calls", "history")
    broken = ActionExecutionMessage(id="call_1", name="setColor", arguments='{"col')
    heard = (await asked(fake, asking(HELLO, broken, RESULT))).messages
    assert [one.call[2] for one in heard if one.call] == [{"unreadable": '{"col'}]


async def test_half_a_character_can_be_asked(fake: Fake):
    ((_, heard),) = await messages(fake, text("a\ud83db"))
    assert (heard[0], heard[-1]) == ("a", "b")


@in_one_test("kind", ["images", "image_urls"])
async def test_an_image_is_shown(fake: Fake, kind: str):
    needs(fake, kind)
    value = PNG if kind == "images" else "https://example.test/a.png"
    source = "data" if kind == "images" else "url"
    image = MediaPart(kind="image", source=source, value=value, mime_type="image/png")
    parts = [TextPart(text="Look"), image]
    look = TextMessage(id="u1", role="user", content="Look", parts=parts)
    heard = (await asked(fake, asking(look))).messages
    assert [(one.text, one.image) for one in heard] == [("Look", ""), ("", value)]


async def test_an_image_message_is_shown(fake: Fake):
    needs(fake, "images")
    image = ImageMessage(id="i1", role="user", format="png", bytes=PNG)
    heard = (await asked(fake, asking(image, HELLO))).messages
    assert [one.image for one in heard if one.image] == [PNG]


async def test_a_document_is_shown(fake: Fake):
    needs(fake, "documents")
    document = MediaPart(
        kind="document", source="data", value=PDF, mime_type="application/pdf", filename="a.pdf"
    )
    look = TextMessage(
        id="u1", role="user", content="Read", parts=[TextPart(text="Read"), document]
    )
    heard = (await asked(fake, asking(look))).messages
    assert [one.document for one in heard if one.document] == [PDF]


async def test_a_text_file_is_read_out(fake: Fake):
    file = MediaPart(
        kind="document", source="data", value="U2VjcmV0", mime_type="text/plain", filename="a.txt"
    )
    look = TextMessage(id="u1", role="user", content="Read", parts=[TextPart(text="Read"), file])
    heard = (await asked(fake, asking(look))).messages
    assert "Secret" in json.dumps([(one.text, one.document) for one in heard]) or any(
        one.document == "U2VjcmV0" for one in heard
    )


async def test_a_signed_thought_goes_back_before_its_call(fake: Fake):
    needs(fake, "reasoning", "signatures", "calls")
    steps = [CallStart("call_1", "setColor"), CallArgs("call_1", "{}"), CallEnd("call_1")]
    fake.plays(Think("Hm."), Think("", "c2lnLTE="), *steps, Stop("tool_calls"))
    adapter = fake.adapter()
    said = fold_messages(await answer_of(adapter))
    call = next(one for one in said if isinstance(one, ActionExecutionMessage))
    result = ResultMessage(id="r1", call_id=call.id, name=call.name, result="done")
    fake.plays(Say("Done."), Stop())

    await answer_of(adapter, asking(HELLO, *said, result))

    heard = fake.asked[-1].messages
    kinds = [one.thought or (one.call and "call") or one.text for one in heard]
    assert kinds == ["Hello", "c2lnLTE=", "call", "done"]


async def test_a_thought_that_another_provider_signed_is_left_out(fake: Fake):
    thought = ReasoningMessage(id="t1", content="Hm.", signature="somebody:c2lnLTE=")
    heard = (await asked(fake, asking(HELLO, thought, text("And now?")))).messages
    assert [one.text for one in heard] == ["Hello", "And now?"]


async def test_a_conversation_too_long_loses_its_oldest_part(fake: Fake):
    needs(fake, "trimming")
    old = [text(f"{number:0300d}", id=f"u{number}") for number in range(20)]
    told = text("Be kind.", "system")
    heard = await messages(fake, told, *old, HELLO, context_tokens=1_500)
    texts = [text for _, text in heard]
    assert ("Be kind." in texts[0], texts[-1], old[-1].content in texts) == (True, "Hello", True)
    assert old[0].content not in texts


async def test_tools_count_when_the_conversation_is_trimmed(fake: Fake):
    needs(fake, "calls", "trimming")
    old = [text(f"{number:0300d}", id=f"u{number}") for number in range(20)]
    large = Action(name="large", description="x" * 1_500)
    sent: list[int] = []
    for actions in ([], [large]):
        request = ChatRequest(messages=[*old, HELLO], actions=actions)
        sent.append(len((await asked(fake, request, context_tokens=2_000)).messages))
    assert sent[1] < sent[0]


async def test_a_key_and_headers_of_ones_own_are_sent(fake: Fake):
    needs(fake, "http")
    sent = await asked(fake, asking(), headers={"X-Mine": "1"})
    assert sent.headers["x-mine"] == "1"


def test_the_table_names_only_what_there_is():
    named = {
        name for table in (UNSUPPORTED, UNDOCUMENTED) for lacks in table.values() for name in lacks
    }
    assert named <= set(CAPABILITIES)
    assert set(FAKES) >= {"openai", "openai_responses"}
