"""What a preset of `OpenAIAdapter` changes: parameters, names, history; all else is OpenAI's."""

from dataclasses import replace

import pytest

from copilot_runtime.adapters.capabilities import UNSUPPORTED
from copilot_runtime.adapters.openai.presets import PRESETS
from copilot_runtime.api import Action
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    MediaPart,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import ConfigurationFailed, RateLimited
from tests.adapters.asking import (
    HELLO,
    SET_COLOR,
    answer,
    asking,
    calls_in,
    failure,
    text_in,
    thought_in,
    usage_in,
    warnings_in,
)
from tests.adapters.contract.fakes import (
    KEY,
    SERVICES,
    CallArgs,
    CallEnd,
    CallStart,
    Fails,
    Fake,
    Say,
    Stop,
    Think,
    Tokens,
    make_fake,
)
from tests.adapters.contract.test_requests import PNG, WANTED, WISHES
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def lacks(fake: Fake, name: str) -> bool:
    return name in UNSUPPORTED.get(fake.name, {})


@in_one_test("service", SERVICES)
async def test_a_service_is_sent_what_it_takes_and_the_rest_is_told(service: str):
    async with make_fake(service) as fake:
        fake.plays(Say("Hi"), Stop())
        for name, value in [*WISHES, ("response_schema", WANTED["response_schema"])]:
            events = await answer(fake, asking(**{name: value}))
            sent = fake.asked[-1].parameters
            if lacks(fake, name):
                assert (warnings_in(events[:1]), name in sent) == ([name], False)
            elif name == "response_schema":
                assert list(sent[name]["properties"]) == ["color"]
            else:
                assert (warnings_in(events), sent[name]) == ([], value)


@in_one_test("service", SERVICES)
async def test_what_a_service_does_not_take_is_refused_by_setting(service: str):
    async with make_fake(service) as fake:
        fake.plays(Say("Hi"), Stop())
        for name in [name for name in WANTED if lacks(fake, name)]:
            _, error = await failure(fake, asking(**{name: WANTED[name]}), unsupported="refuse")
            assert (type(error), name in error.message) == (ConfigurationFailed, True)
        assert fake.asked == []


@in_one_test("service", SERVICES)
async def test_a_service_is_told_which_tool_to_choose(service: str):
    async with make_fake(service) as fake:
        fake.plays(Say("Hi"), Stop())
        for choice in ("auto", "none", "required", "function"):
            if lacks(fake, f"tool_choice_{choice}"):
                continue
            named = {"tool_choice_name": "setSize"} if choice == "function" else {}
            await answer(fake, asking(tool_choice=choice, **named))
            sent = fake.asked[-1]
            if choice != "none" or sent.tools:
                assert sent.parameters.get("tool_choice", "auto") == choice
            assert named.items() <= sent.parameters.items()


@in_one_test("service", SERVICES)
async def test_a_service_gets_calls_results_and_pictures_back(service: str):
    async with make_fake(service) as fake:
        fake.plays(Say("Hi"), Stop())
        call = ActionExecutionMessage(id="call_1", name="größer", arguments='{"to":7}')
        result = ResultMessage(id="r1", call_id="call_1", name="größer", result="done")
        later = TextMessage(id="u2", role="user", content="And now?")
        request = replace(
            asking(HELLO, call, result, later), actions=[SET_COLOR, Action(name="größer")]
        )
        await answer(fake, request)
        heard = fake.asked[-1].messages
        ((id, name, arguments),) = [one.call for one in heard if one.call]
        assert (name, arguments) == (fake.asked[-1].tools[1].name, {"to": 7})
        assert [(one.result_of, one.text) for one in heard if one.result_of] == [(id, "done")]
        assert heard[-1].text == "And now?"

        if not lacks(fake, "images"):
            image = MediaPart(kind="image", source="data", value=PNG, mime_type="image/png")
            parts = [TextPart(text="Look"), image]
            look = TextMessage(id="u1", role="user", content="Look", parts=parts)
            await answer(fake, asking(look))
            assert [one.image for one in fake.asked[-1].messages if one.image] == [PNG]


@in_one_test("service", SERVICES)
async def test_an_answer_of_a_service_is_read_whole(service: str):
    async with make_fake(service) as fake:
        fake.plays(
            *(Think("Hm."), Say("So "), Say("be it"), CallStart("call_1", "setColor")),
            *(CallArgs("call_1", '{"color":'), CallStart("call_2", "setSize")),
            *(CallArgs("call_2", '{"size":7}'), CallArgs("call_1", '"red"}')),
            *(CallEnd("call_1"), CallEnd("call_2"), Tokens(7, 5, 3, 2), Stop("tool_calls")),
        )
        events = await answer(fake)
        assert (thought_in(events), text_in(events)) == ("Hm.", "So be it")
        assert [*calls_in(events).values()] == [
            ("setColor", '{"color":"red"}'),
            ("setSize", '{"size":7}'),
        ]
        assert (usage_in(events).input_tokens, usage_in(events).output_tokens) == (7, 5)


@in_one_test("service", SERVICES)
async def test_a_refusal_of_a_service_has_its_name_and_not_the_key(service: str):
    async with make_fake(service) as fake:
        fake.plays(Fails(429, message=f"Too many with {KEY}."))
        _, error = await failure(fake, max_retries=0)
        assert isinstance(error, RateLimited)
        assert PRESETS[fake.name].name in error.message
        assert KEY not in f"{error!r} {error.message} {error.hint}"
