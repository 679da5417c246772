"""What a chat request becomes on its way to Anthropic's Messages API."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from copilot_runtime.adapters.added_fields import name_origin
from copilot_runtime.adapters.anthropic import AnthropicAdapter
from copilot_runtime.api import Action, ChatRequest, Parameters
from copilot_runtime.api.events import Custom, Event
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
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from tests.adapters.asking import HELLO, RED, SEVEN, answer_to
from tests.adapters.contract.anthropic_fake import AnthropicFake
from tests.adapters.contract.fakes import Say, Stop
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

COLOR = Action(name="setColor", description="Paints.", parameters={"type": "object"})
MARK = {"type": "ephemeral"}


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncGenerator[AnthropicFake, None]:
    async with AnthropicFake() as fake:
        fake.plays(Say("Hi"), Stop())
        yield fake


async def body_for(
    fake: AnthropicFake,
    *messages: Message,
    actions: Sequence[Action] = (),
    parameters: Parameters | None = None,
    **options: Any,
) -> Json:
    options = {"cache": False, **options}
    adapter: Any = fake.adapter(**options)
    origin = name_origin("messages", fake.provider.url, adapter.model)
    messages = tuple(
        replace(one, signature=one.signature.replace("here", origin))
        if isinstance(one, ReasoningMessage) and one.signature
        else one
        for one in messages
    )
    request = ChatRequest(
        messages=messages or (HELLO,), actions=actions, parameters=parameters or Parameters()
    )
    await answer_to(adapter, request)
    return fake.asked[-1].body


def warnings_in(events: Sequence[Event]) -> list[str]:
    return [event.value["code"] for event in events if isinstance(event, Custom)]


def text(content: str) -> Json:
    return {"type": "text", "text": content}


def said(role: Any, content: str, id: str = "m") -> TextMessage:
    return TextMessage(id=id, role=role, content=content)


def call(id: str, name: str = "setColor", arguments: str = RED, parent: str | None = None):
    return ActionExecutionMessage(id=id, name=name, arguments=arguments, parent_id=parent)


def result(id: str, value: str = "done", error: str | None = None) -> ResultMessage:
    return ResultMessage(id=f"r-{id}", call_id=id, name="setColor", result=value, error=error)


def use(id: str, name: str = "setColor", input: Any = None) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input or {"color": "red"}}


def used(id: str, content: Any = "done", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


async def test_instructions_of_both_roles_are_the_system_prompt(fake: AnthropicFake) -> None:
    body = await body_for(
        fake, said("system", "Be kind."), HELLO, said("developer", "Be brief.", "d")
    )

    assert body["system"] == [text("Be kind."), text("Be brief.")]
    assert body["messages"] == [{"role": "user", "content": [text("Hello")]}]


async def test_calls_of_one_answer_share_a_turn_and_their_results_the_next(
    fake: AnthropicFake,
) -> None:
    body = await body_for(
        fake,
        HELLO,
        said("assistant", "Sure.", "a1"),
        call("c1", parent="a1"),
        result("c1"),
        call("c2", "setSize", SEVEN, parent="a1"),
        result("c2", "7"),
        said("user", "Thanks", "u2"),
        actions=[COLOR],
    )

    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": [text("Sure."), use("c1"), use("c2", "setSize", {"size": 7})],
        },
        {"role": "user", "content": [used("c1"), used("c2", "7"), text("Thanks")]},
    ]


@in_one_test("parents", [("a1", "a2"), (None, None)])
async def test_calls_one_after_the_other_have_turns_of_their_own(
    fake: AnthropicFake, parents: Sequence[str | None]
) -> None:
    body = await body_for(
        fake,
        HELLO,
        call("c1", parent=parents[0]),
        result("c1"),
        call("c2", parent=parents[1]),
        result("c2"),
    )

    assert [turn["content"] for turn in body["messages"][1:]] == [
        [use("c1")],
        [used("c1")],
        [use("c2")],
        [used("c2")],
    ]


async def test_calls_without_a_parent_share_a_turn_if_no_result_is_between_them(
    fake: AnthropicFake,
) -> None:
    body = await body_for(fake, HELLO, call("c1"), call("c2"), result("c2"), result("c1"))

    assert body["messages"][1]["content"] == [use("c1"), use("c2")]
    assert body["messages"][2]["content"] == [used("c1"), used("c2")]


async def test_a_conversation_begins_and_ends_with_the_user(fake: AnthropicFake) -> None:
    body = await body_for(fake, said("assistant", "How can I help?"))

    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]


async def test_instructions_after_the_answer_are_the_last_word_of_the_user(
    fake: AnthropicFake,
) -> None:
    body = await body_for(
        fake, HELLO, said("assistant", "Hi", "a1"), said("system", "Suggest a question.", "s")
    )

    assert body["messages"][-1] == {"role": "user", "content": [text("Suggest a question.")]}


async def test_no_conversation_at_all_is_still_a_question(fake: AnthropicFake) -> None:
    body = await body_for(fake, said("system", "Say hello."))

    assert body["system"] == [text("Say hello.")]
    assert [turn["role"] for turn in body["messages"]] == ["user"]


async def test_white_space_is_not_sent(fake: AnthropicFake) -> None:
    body = await body_for(fake, HELLO, said("user", " \n", "u2"))

    assert body["messages"] == [{"role": "user", "content": [text("Hello")]}]


async def test_ids_of_other_providers_are_written_as_the_api_takes_them(
    fake: AnthropicFake,
) -> None:
    body = await body_for(fake, HELLO, call("functions.a:0"), result("functions.a:0"))

    assert body["messages"][1]["content"][0]["id"] == "functions_a_0"
    assert body["messages"][2]["content"][0]["tool_use_id"] == "functions_a_0"


async def test_a_long_id_of_another_provider_is_short_and_the_same_twice(
    fake: AnthropicFake,
) -> None:
    id = f"call_1__thought__{'A/+=' * 200}"
    body = await body_for(fake, HELLO, call(id), result(id))

    made, told = (body["messages"][at]["content"][0] for at in (1, 2))
    assert (len(made["id"]), made["id"]) == (64, told["tool_use_id"])


async def test_calls_of_tools_that_are_gone_are_explained(fake: AnthropicFake) -> None:
    body = await body_for(fake, HELLO, call("c1"), result("c1"))

    assert body["tools"] == [{"name": "setColor", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


async def test_a_failed_call_is_marked(fake: AnthropicFake) -> None:
    body = await body_for(fake, HELLO, call("c1"), result("c1", "", error="No paint."))

    assert body["messages"][2]["content"] == [used("c1", "Error: No paint.", is_error=True)]


async def test_a_failed_call_with_an_image_is_none_to_the_api(fake: AnthropicFake) -> None:
    image = '[{"type":"image","data":"aGk=","mimeType":"image/png"}]'
    body = await body_for(fake, HELLO, call("c1"), result("c1", image, error="No paint."))

    (told,) = body["messages"][2]["content"]
    assert ("is_error" in told, told["content"][0]["type"]) == (False, "image")


async def test_a_result_with_images_shows_them(fake: AnthropicFake) -> None:
    content = (
        '{"content":[{"type":"text","text":"Look"},'
        '{"type":"image","data":"aGk=","mimeType":"image/png"}]}'
    )

    body = await body_for(fake, HELLO, call("c1"), result("c1", content))

    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    shown = [text("Look"), {"type": "image", "source": source}]
    assert body["messages"][2]["content"] == [used("c1", shown)]


THOUGHT = ReasoningMessage(id="t1", content="Red.", signature='here:{"signature":"c2ln"}')
SHOWN = {"type": "thinking", "thinking": "Red.", "signature": "c2ln"}


async def test_thoughts_go_back_with_their_signatures(fake: AnthropicFake) -> None:
    hidden = ReasoningMessage(id="t2", content="", signature='here:{"data":"aGlkZGVu"}')

    body = await body_for(fake, HELLO, THOUGHT, hidden, call("c1"), result("c1"))

    assert body["messages"][1]["content"] == [
        SHOWN,
        {"type": "redacted_thinking", "data": "aGlkZGVu"},
        use("c1"),
    ]


@in_one_test(
    "messages",
    [
        [HELLO, replace(THOUGHT, signature=None), said("assistant", "Red.")],
        [
            HELLO,
            replace(THOUGHT, signature='there:{"signature":"c2ln"}'),
            said("assistant", "Red."),
        ],
        [HELLO, THOUGHT, said("user", "Wait", "u2")],
        [HELLO, said("assistant", "Red."), THOUGHT],
    ],
    ids=["unsigned", "of another provider", "before the user", "at the end"],
)
async def test_thoughts_that_would_be_refused_stay_here(
    fake: AnthropicFake, messages: Sequence[Message]
) -> None:
    body = await body_for(fake, *messages)

    kinds = {block["type"] for turn in body["messages"] for block in turn["content"]}
    assert kinds == {"text"}


async def test_a_page_that_changes_does_not_make_thoughts_an_error(fake: AnthropicFake) -> None:
    body = await body_for(fake, HELLO, THOUGHT, call("c1"), result("c1"), model="claude-opus-5-5")

    assert body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    betas = fake.asked[0].headers["anthropic-beta"]
    assert betas == "thinking-binding-controls-2026-08-01"


async def test_without_thinking_such_thoughts_stay_here(fake: AnthropicFake) -> None:
    body = await body_for(
        fake, HELLO, THOUGHT, call("c1"), result("c1"), model="claude-haiku-5-5", thinking=False
    )

    assert body["thinking"] == {"type": "disabled"}
    assert body["messages"][1]["content"] == [use("c1")]


ADAPTIVE = {"type": "adaptive", "display": "summarized"}
THINKING: list[tuple[str, Any, Any, Json]] = [
    # model, thinking, reasoning_effort, what is sent
    ("claude-3-5-haiku-latest", None, None, {}),
    ("claude-sonnet-4-5", None, None, {}),
    ("claude-sonnet-4-5", True, None, {"thinking": {"type": "enabled", "budget_tokens": 8192}}),
    ("claude-sonnet-4-5", 4000, None, {"thinking": {"type": "enabled", "budget_tokens": 4000}}),
    ("claude-sonnet-4-5", 1, None, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    ("claude-sonnet-4-5", None, "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}}),
    ("claude-sonnet-4-5", None, "minimal", {}),
    ("claude-opus-4-5", None, "low", {"output_config": {"effort": "low"}}),
    ("claude-opus-4-6", None, None, {}),
    ("claude-opus-4-6", True, None, {"thinking": ADAPTIVE}),
    ("claude-opus-4-6", None, "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
    ("claude-opus-4-6", None, "minimal", {"output_config": {"effort": "low"}}),
    ("claude-opus-5", None, None, {"thinking": ADAPTIVE}),
    ("claude-opus-5", False, None, {"thinking": {"type": "disabled"}}),
    ("claude-sonnet-5-5", None, None, {"thinking": ADAPTIVE}),
    ("claude-sonnet-5-5", False, None, {"thinking": {"type": "between_tools"}}),
    ("claude-opus-5-5", 4000, None, {"thinking": ADAPTIVE}),
    (
        "claude-fable-5-2",
        None,
        "minimal",
        {"thinking": ADAPTIVE, "output_config": {"effort": "low"}},
    ),
]


@in_one_test(("model", "thinking", "effort", "sent"), THINKING)
async def test_each_model_is_asked_to_think_its_way(
    fake: AnthropicFake, model: str, thinking: Any, effort: Any, sent: Json
) -> None:
    wishes = Parameters(reasoning_effort=effort)

    body = await body_for(fake, model=model, thinking=thinking, parameters=wishes)

    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == sent


async def test_a_budget_leaves_room_for_the_answer(fake: AnthropicFake) -> None:
    wishes = Parameters(max_tokens=2000)

    body = await body_for(fake, model="claude-sonnet-4-5", thinking=9000, parameters=wishes)

    assert body["thinking"]["budget_tokens"] == 1999


async def test_an_older_model_does_not_begin_to_think_after_its_call(fake: AnthropicFake) -> None:
    options: Json = {"model": "claude-sonnet-4-5", "thinking": True}

    without = await body_for(fake, HELLO, call("c1"), result("c1"), **options)
    with_it = await body_for(fake, HELLO, THOUGHT, call("c1"), result("c1"), **options)

    assert "thinking" not in without
    assert "thinking" in with_it


CHOICES: list[tuple[Parameters, Json | None]] = [
    (Parameters(), None),
    (Parameters(tool_choice="auto"), {"type": "auto"}),
    (Parameters(tool_choice="none"), {"type": "none"}),
    (Parameters(tool_choice="required"), {"type": "any"}),
    (
        Parameters(tool_choice="function", tool_choice_name="setColor"),
        {"type": "tool", "name": "setColor"},
    ),
    (
        Parameters(parallel_tool_calls=False),
        {"type": "auto", "disable_parallel_tool_use": True},
    ),
    (
        Parameters(tool_choice="required", parallel_tool_calls=False),
        {"type": "any", "disable_parallel_tool_use": True},
    ),
    (Parameters(tool_choice="none", parallel_tool_calls=False), {"type": "none"}),
]


@in_one_test(("wishes", "choice"), CHOICES)
async def test_a_choice_of_tools_is_written_in_claude_s_words(
    fake: AnthropicFake, wishes: Parameters, choice: Json | None
) -> None:
    body = await body_for(fake, actions=[COLOR], parameters=wishes)

    assert body.get("tool_choice") == choice


@in_one_test(
    ("model", "eager", "sent"),
    [
        ("claude-opus-5-5", True, True),
        ("claude-opus-5-5", False, None),
        ("claude-sonnet-4-0", True, None),
        ("a-model-of-a-gateway", True, None),
    ],
)
async def test_arguments_are_asked_for_while_they_are_written(
    fake: AnthropicFake, model: str, eager: bool, sent: bool | None
) -> None:
    body = await body_for(fake, actions=[COLOR], model=model, eager_arguments=eager)

    assert body["tools"][0].get("eager_input_streaming") is sent


async def test_a_forced_call_comes_without_thoughts(fake: AnthropicFake) -> None:
    wishes = Parameters(tool_choice="required")

    body = await body_for(fake, model="claude-opus-5", actions=[COLOR], parameters=wishes)

    assert body["thinking"] == {"type": "disabled"}
    assert body["tool_choice"] == {"type": "any"}


WISHES: list[tuple[str, Json, list[str]]] = [
    ("claude-opus-5-5", {"tool_choice": "required"}, ["tool_choice_required"]),
    ("claude-opus-5-5", {"temperature": 0.5, "top_p": 0.9}, ["temperature", "top_p"]),
    ("claude-opus-4-6", {"temperature": 0.5, "top_p": 0.9}, ["top_p"]),
    ("claude-opus-4-6", {"temperature": 0.0, "reasoning_effort": "low"}, ["temperature"]),
    ("claude-3-5-haiku-latest", {"reasoning_effort": "low"}, ["reasoning_effort"]),
    ("claude-3-5-haiku-latest", {"response_schema": {}}, ["response_schema"]),
    ("claude-opus-5-5", {"seed": 1}, ["seed"]),
]


@in_one_test(("model", "wishes", "codes"), WISHES)
async def test_a_wish_that_a_model_would_refuse_is_left_out_with_a_warning(
    fake: AnthropicFake, model: str, wishes: Json, codes: list[str]
) -> None:
    request = ChatRequest(messages=[HELLO], actions=[COLOR], parameters=Parameters(**wishes))

    events = await answer_to(fake.adapter(model=model), request)

    assert warnings_in(events) == codes
    assert not {*codes} & {*fake.asked[0].body}


@in_one_test(("model", "wishes", "codes"), WISHES)
async def test_such_a_wish_can_be_refused_instead(
    fake: AnthropicFake, model: str, wishes: Json, codes: list[str]
) -> None:
    request = ChatRequest(messages=[HELLO], actions=[COLOR], parameters=Parameters(**wishes))

    with pytest.raises(ConfigurationFailed, match=codes[0]):
        await answer_to(fake.adapter(model=model, unsupported="refuse"), request)

    assert fake.asked == []


VERSIONS = [
    ("claude-opus-5-5", Parameters(), "2026-10-21"),
    ("claude-opus-4-6", Parameters(), "2026-10-21"),
    ("claude-opus-4-6", Parameters(temperature=0.0), "2023-06-01"),
    ("a-model-of-a-gateway", Parameters(), "2023-06-01"),
]


@in_one_test(("model", "wishes", "version"), VERSIONS)
async def test_the_version_of_the_api_is_the_newest_that_takes_what_is_asked(
    fake: AnthropicFake, model: str, wishes: Parameters, version: str
) -> None:
    body = await body_for(fake, model=model, parameters=wishes)

    assert fake.asked[0].headers["anthropic-version"] == version
    assert body.get("temperature") == wishes.temperature


async def test_what_stays_the_same_is_marked_for_the_cache(fake: AnthropicFake) -> None:
    body = await body_for(
        fake, said("system", "Be kind."), HELLO, actions=[Action(name="a"), COLOR], cache=True
    )

    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert body["system"] == [{**text("Be kind."), "cache_control": MARK}]
    assert body["messages"][0]["content"] == [{**text("Hello"), "cache_control": MARK}]


async def test_the_cache_can_be_kept_for_an_hour(fake: AnthropicFake) -> None:
    body = await body_for(fake, cache="1h")

    assert body["messages"][0]["content"][0]["cache_control"] == {**MARK, "ttl": "1h"}


async def test_what_is_only_said_this_time_is_not_marked(fake: AnthropicFake) -> None:
    body = await body_for(
        fake,
        HELLO,
        said("assistant", "Hi", "a1"),
        said("system", "Suggest a question.", "s"),
        cache=True,
    )

    marked = [
        block["text"]
        for turn in body["messages"]
        for block in turn["content"]
        if "cache_control" in block
    ]
    assert marked == ["Hi"]


LONGEST = [
    ("claude-3-5-haiku-latest", None, None, 8_192),
    ("claude-opus-5-5", None, None, 32_000),
    ("claude-opus-5-5", 100_000, None, 100_000),
    ("claude-opus-5-5", 100_000, 500, 500),
    ("claude-opus-4-1", None, 1_000_000, 32_000),
    ("a-model-of-a-gateway", None, 1_000_000, 1_000_000),
]


@in_one_test(("model", "usual", "asked", "sent"), LONGEST)
async def test_an_answer_is_as_long_as_asked_and_the_model_can(
    fake: AnthropicFake, model: str, usual: int | None, asked: int | None, sent: int
) -> None:
    wishes = Parameters(max_tokens=asked)

    body = await body_for(fake, model=model, max_tokens=usual, parameters=wishes)

    assert body["max_tokens"] == sent


async def test_a_schema_is_closed_and_its_limits_are_told_in_words(fake: AnthropicFake) -> None:
    size = {"type": "integer", "minimum": 1, "description": "In cm."}
    schema = {
        "type": "object",
        "properties": {"size": size, "tags": {"type": "array", "items": {"type": "object"}}},
        "required": ["size"],
    }

    body = await body_for(fake, parameters=Parameters(response_schema=schema))

    assert body["output_config"]["format"] == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "description": 'In cm. {"minimum":1}'},
                "tags": {
                    "type": "array",
                    "items": {"type": "object", "additionalProperties": False},
                },
            },
            "required": ["size"],
            "additionalProperties": False,
        },
    }


def attached(**fields: Any) -> TextMessage:
    parts = [TextPart(text="Look"), MediaPart(**fields)]
    return TextMessage(id="u1", role="user", content="Look", parts=parts)


PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
ATTACHMENTS: dict[str, tuple[Message, Json]] = {
    "an image": (
        attached(kind="image", source="data", value="aGk=", mime_type="image/png"),
        {"type": "image", "source": PNG},
    ),
    "an image message": (
        ImageMessage(id="i1", role="user", format="png", bytes="aGk="),
        {"type": "image", "source": PNG},
    ),
    "an image elsewhere": (
        attached(kind="image", source="url", value="https://a.example/b.png"),
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
    ),
    "a PDF": (
        attached(
            kind="document",
            source="data",
            value="aGk=",
            mime_type="application/pdf",
            filename="a.pdf",
        ),
        {"type": "document", "source": PDF, "title": "a.pdf"},
    ),
    "a PDF elsewhere": (
        attached(kind="document", source="url", value="https://a.example/b.pdf"),
        {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}},
    ),
    "a text": (
        attached(kind="document", source="data", value="aGk=", mime_type="text/csv"),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
    ),
    "a file of theirs": (
        attached(kind="document", source="id", value="file_1"),
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ),
}


@in_one_test(("message", "block"), ATTACHMENTS.values(), ids=ATTACHMENTS)
async def test_attachments_are_sent_as_blocks(
    fake: AnthropicFake, message: Message, block: Json
) -> None:
    body = await body_for(fake, message)

    assert body["messages"][0]["content"][-1] == block


async def test_files_of_theirs_need_a_beta(fake: AnthropicFake) -> None:
    message = attached(kind="image", source="id", value="file_1")

    await body_for(fake, message, betas=["my-beta"])

    assert fake.asked[0].headers["anthropic-beta"] == "my-beta,files-api-2025-04-14"


@in_one_test(
    ("kind", "mime_type", "why"),
    [
        ("audio", "audio/mp3", "takes no audio"),
        ("image", "image/tiff", "takes images as"),
        ("document", "application/msword", "takes documents as"),
    ],
)
async def test_other_attachments_are_refused_now_and_told_later(
    fake: AnthropicFake, kind: Any, mime_type: str, why: str
) -> None:
    message = attached(kind=kind, source="data", value="aGk=", mime_type=mime_type)

    with pytest.raises(Misuse, match=why):
        await body_for(fake, message)
    later = await body_for(fake, message, said("assistant", "No.", "a1"), said("user", "So?", "u2"))

    assert why in later["messages"][0]["content"][-1]["text"]


async def test_every_body_is_one_that_the_sdk_knows(fake: AnthropicFake) -> None:
    pytest.importorskip("anthropic")
    from anthropic.types import message_create_params
    from pydantic import TypeAdapter

    body = await body_for(
        fake,
        said("system", "Be kind."),
        attached(kind="image", source="data", value="aGk=", mime_type="image/png"),
        THOUGHT,
        call("c1"),
        result("c1"),
        actions=[COLOR],
        model="claude-opus-5-5",
        parameters=Parameters(reasoning_effort="low", stop=["END"], parallel_tool_calls=False),
        cache="1h",
    )

    del body["thinking"]["block_binding"]  # known to their beta types only
    params = TypeAdapter(message_create_params.MessageCreateParamsStreaming)
    assert {*params.validate_python(body)} == {*body}  # pydantic drops what it does not know


async def test_without_a_key_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigurationFailed, match="no API key for Anthropic"):
        await answer_to(AnthropicAdapter())


async def test_key_and_address_come_from_the_environment(
    fake: AnthropicFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-env\n")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{fake.provider.url}/v1/")
    adapter = AnthropicAdapter()

    await answer_to(adapter)
    await adapter.aclose()

    assert fake.asked[0].headers["x-api-key"] == "sk-env"
    assert fake.provider.requests[0].line == "POST /v1/messages HTTP/1.1"
