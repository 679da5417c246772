"""A conversation of AG-UI is read into ours and written again without a loss."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.agui.messages import decode_messages, encode_messages
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import Misuse
from tests.in_one_test import in_one_test

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
TEXT = st.text(max_size=5)
OBJECT = st.dictionaries(TEXT, ANYTHING, max_size=2)
MORE: dict[str, Any] = {"encryptedValue": TEXT, "metadata": OBJECT, "subagentRunId": TEXT}
NAMED: dict[str, Any] = {"name": TEXT, **MORE}

SOURCES = st.fixed_dictionaries(
    {"type": st.just("data"), "value": TEXT, "mimeType": TEXT.filter(bool)}
) | st.fixed_dictionaries(
    {"type": st.just("url"), "value": TEXT}, optional={"mimeType": TEXT.filter(bool)}
)


def binary(source: str) -> st.SearchStrategy[dict[str, str]]:
    fields = {"mimeType": TEXT.filter(bool), source: TEXT.filter(bool)}
    return st.fixed_dictionaries({"type": st.just("binary"), **fields}, optional={"filename": TEXT})


PARTS = (
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["image", "audio", "video", "document"]), "source": SOURCES},
        optional={"metadata": ANYTHING.filter(lambda value: value is not None)},
    )
    | st.sampled_from(["data", "url", "id"]).flatmap(binary)
)
FUNCTIONS = st.fixed_dictionaries({"name": TEXT, "arguments": TEXT})


def role_of(name: str, optional: dict[str, Any], **fields: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"role": st.just(name), **fields}, optional=optional)


CALLS = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("function"), "function": FUNCTIONS},
        optional={"encryptedValue": TEXT, "metadata": OBJECT},
    ),
    min_size=1,
    max_size=3,
)
MESSAGES = st.one_of(
    role_of("user", NAMED, content=TEXT | st.lists(PARTS, min_size=1, max_size=3)),
    role_of("system", NAMED, content=TEXT),
    role_of("developer", NAMED, content=TEXT),
    role_of("assistant", NAMED, content=TEXT),
    role_of("assistant", NAMED, content=TEXT, toolCalls=CALLS),
    role_of("assistant", {}, toolCalls=CALLS),
    role_of("tool", {"error": TEXT, **MORE}, content=TEXT, toolCallId=TEXT),
    role_of("reasoning", MORE, content=TEXT),
    role_of(
        "activity",
        {"metadata": OBJECT, "subagentRunId": TEXT},
        activityType=TEXT,
        content=OBJECT,
    ),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw messages and calls of all kinds, each with an id of its own."""
    kinds: list[dict[str, Any]] = draw(st.lists(MESSAGES))
    drawn: list[dict[str, Any]] = [{"id": f"m{at}", **one} for at, one in enumerate(kinds)]
    for message in drawn:
        for at, call in enumerate(message.get("toolCalls", [])):
            call["id"] = f"{message['id']}-{at}"
    return drawn


@given(conversations())
def test_whatever_a_client_sends_is_sent_on_as_it_was(messages: list[dict[str, Any]]):
    assert encode_messages(decode_messages(messages)) == messages


@given(conversations())
def test_what_we_keep_of_a_conversation_is_the_same_when_it_comes_again(
    messages: list[dict[str, Any]],
):
    ours = decode_messages(messages)
    assert decode_messages(encode_messages(ours)) == ours


@given(st.lists(ANYTHING | st.fixed_dictionaries({"id": TEXT, "role": TEXT, "content": ANYTHING})))
def test_nothing_a_client_sends_is_more_than_a_misuse(messages: list[Any]):
    try:
        encode_messages(decode_messages(messages))
    except Misuse as error:
        assert error.message.startswith("messages[")


def test_one_message_of_an_assistant_is_a_text_and_its_calls():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = {"id": "t", "role": "tool", "toolCallId": "c", "content": "3", "error": "no"}
    message = {"id": "a", "role": "assistant", "content": "Look", "toolCalls": [call]}

    assert decode_messages([message, answer]) == [
        TextMessage(id="a", role="assistant", content="Look"),
        ActionExecutionMessage(id="c", name="f", arguments="{}", parent_id="a"),
        ResultMessage(id="t", call_id="c", name="f", result="3", error="no"),
    ]


@in_one_test("content", [{}, {"content": None}])
def test_calls_without_a_text_make_no_text(content: dict[str, None]):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert decode_messages([{"id": "a", "role": "assistant", "toolCalls": [call], **content}]) == [
        ActionExecutionMessage(id="c", name="f", arguments="{}", parent_id="a")
    ]


@in_one_test("role", ["user", "assistant", "system", "developer"])
@in_one_test("fields", [{}, {"content": None, "name": None, "metadata": None}])
def test_a_message_without_content_is_empty(role: Any, fields: dict[str, None]):
    assert decode_messages([{"id": "a", "role": role, **fields}]) == [
        TextMessage(id="a", role=role, content="")
    ]


def test_the_content_of_a_message_in_parts_is_their_text():
    part = {"type": "image", "source": {"type": "url", "value": "u"}, "metadata": {"w": 1}}
    parts = [{"type": "text", "text": "What "}, part, {"type": "text", "text": "is this?"}]

    assert decode_messages([{"id": "u", "role": "user", "content": parts}]) == [
        TextMessage(
            id="u",
            role="user",
            content="What is this?",
            parts=(
                TextPart(text="What "),
                MediaPart(kind="image", source="url", value="u", metadata={"w": 1}),
                TextPart(text="is this?"),
            ),
        )
    ]


def test_thoughts_and_activities_are_messages():
    assert decode_messages(
        [
            {"id": "r", "role": "reasoning", "content": "Hm", "encryptedValue": "E"},
            {"id": "a", "role": "activity", "activityType": "PLAN", "content": {"n": 1}},
        ]
    ) == [
        ReasoningMessage(id="r", content="Hm", signature="E"),
        ActivityMessage(id="a", activity_type="PLAN", content={"n": 1}),
    ]


def test_texts_of_a_model_in_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert decode_messages([{"id": "1", "role": "assistant", "content": parts}]) == [
        TextMessage(id="1", role="assistant", content="ab")
    ]


def call_of(id: str, parent_id: str | None = None) -> ActionExecutionMessage:
    return ActionExecutionMessage(id=id, name="f", arguments="{}", parent_id=parent_id)


def written(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_call_without_a_parent_is_a_message_that_has_its_id():
    assert encode_messages([call_of("c"), call_of("d")]) == [
        {"id": "c", "role": "assistant", "toolCalls": [written("c")]},
        {"id": "d", "role": "assistant", "toolCalls": [written("d")]},
    ]


def test_calls_find_their_parent_although_a_result_stands_between():
    result = ResultMessage(id="r", call_id="c", name="f", result="1")
    text = TextMessage(id="p", role="assistant", content="Hi")

    assert encode_messages([text, call_of("c", "p"), result, call_of("d", "p")]) == [
        {
            "id": "p",
            "role": "assistant",
            "content": "Hi",
            "toolCalls": [written("c"), written("d")],
        },
        {"id": "r", "role": "tool", "toolCallId": "c", "content": "1"},
    ]


def test_a_call_before_the_text_of_its_message_is_in_the_same_message():
    text = TextMessage(id="p", role="assistant", content="Hi")
    assert encode_messages([call_of("c", "p"), text]) == [
        {"id": "p", "role": "assistant", "content": "Hi", "toolCalls": [written("c")]}
    ]


def test_a_call_is_never_put_into_the_message_of_a_user():
    user = TextMessage(id="u", role="user", content="Hi")
    assert encode_messages([user, call_of("c", "u")]) == [
        {"id": "u", "role": "user", "content": "Hi"},
        {"id": "c", "role": "assistant", "toolCalls": [written("c")]},
    ]


def test_what_a_client_of_1_0_sends_is_sent_on_as_it_was():
    source = {"type": "file", "value": "file-1", "provider": "openai", "mimeType": "image/png"}
    parts = [
        {"type": "text", "text": "See", "id": "p1", "metadata": {"a": 1}},
        {"type": "image", "source": source, "id": "p2", "metadata": {"title": "Cat"}},
        {"type": "document", "source": {"type": "file", "value": "file-2"}},
    ]
    messages = [
        {"id": "u", "role": "user", "content": parts},
        {"id": "t", "role": "tool", "toolCallId": "c", "content": parts},
    ]

    assert encode_messages(decode_messages(messages), legacy=False) == messages


def test_parts_of_old_are_sent_to_1_0_as_it_knows_them():
    old = [
        {"type": "binary", "mimeType": "image/png", "data": "AA=="},
        {"type": "binary", "mimeType": "text/csv", "url": "https://x.example/a"},
        {"type": "binary", "mimeType": "audio/wav", "id": "f", "filename": "a.wav"},
    ]
    [message] = encode_messages(decode_messages([user(content=old)]), legacy=False)

    assert message["content"] == [
        {
            "type": "image",
            "source": {"type": "data", "value": "AA==", "mimeType": "image/png"},
        },
        {
            "type": "document",
            "source": {"type": "url", "value": "https://x.example/a", "mimeType": "text/csv"},
        },
        {
            "type": "audio",
            "source": {"type": "file", "value": "f", "mimeType": "audio/wav"},
            "metadata": {"filename": "a.wav"},
        },
    ]


@in_one_test(
    "strange",
    [{"type": "smell"}, {"type": "image", "source": {"type": "satellite", "value": "x"}}],
)
@in_one_test("role", ["user", "assistant", "tool"])
def test_a_part_that_nobody_knows_is_left_out(strange: dict[str, Any], role: str):
    content = [strange, {"type": "text", "text": "Hi"}]
    [message] = decode_messages([{"id": "m", "role": role, "toolCallId": "c", "content": content}])

    assert isinstance(message, TextMessage | ResultMessage)
    text = message.result if isinstance(message, ResultMessage) else message.content
    assert text == "Hi"


def test_what_only_v1_clients_say_is_said_as_well_as_it_can_be():
    assert encode_messages(
        [
            AgentStateMessage(id="s", agent="a", state={}),
            ImageMessage(id="i", role="user", format="jpg", bytes="AA=="),
            TextMessage(id="t", role="tool", content="a text answers no call"),
        ]
    ) == [
        {
            "id": "i",
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "data", "value": "AA==", "mimeType": "image/jpeg"},
                }
            ],
        }
    ]


def test_a_part_without_a_type_of_its_bytes_gets_one_that_clients_take():
    parts = (
        MediaPart(kind="document", source="data", value="AA==", filename="a.pdf"),
        MediaPart(kind="image", source="id", value="file-1"),
    )
    assert encode_messages([TextMessage(id="u", role="user", content="", parts=parts)]) == [
        {
            "id": "u",
            "role": "user",
            "content": [
                {
                    "type": "document",
                    "source": {
                        "type": "data",
                        "value": "AA==",
                        "mimeType": "application/octet-stream",
                    },
                    "metadata": {"filename": "a.pdf"},
                },
                {"type": "binary", "mimeType": "application/octet-stream", "id": "file-1"},
            ],
        }
    ]


def user(**fields: Any) -> dict[str, Any]:
    return {"id": "u", "role": "user", **fields}


@in_one_test(
    ("message", "complaint"),
    [
        ("Hi", "messages[1] must be an object"),
        (None, "messages[1] must be an object"),
        ({"role": "user"}, "messages[1].id must be a string"),
        ({"id": 7, "role": "user"}, "messages[1].id must be a string"),
        ({"id": "u"}, "messages[1].role must be a string"),
        (
            {"id": "u", "role": "robot"},
            "messages[1].role is 'robot', which is none of "
            "user, assistant, system, developer, tool, reasoning, activity",
        ),
        (user(content=7), "messages[1].content must be a string or a list of parts"),
        (user(content={}), "messages[1].content must be a string or a list of parts"),
        (user(content=["Hi"]), "messages[1].content[0] must be an object"),
        (user(content=[{}]), "messages[1].content[0].type must be a string"),
        (
            user(content=[{"type": "text"}]),
            "messages[1].content[0].text must be a string",
        ),
        (
            user(content=[{"type": "image"}]),
            "messages[1].content[0].source must be an object",
        ),
        (
            user(content=[{"type": "image", "source": {"type": ["data"]}}]),
            "messages[1].content[0].source.type must be a string",
        ),
        (
            user(content=[{"type": "image", "source": {"type": "data", "value": "AA"}}]),
            "messages[1].content[0].source.mimeType must be a string",
        ),
        (
            user(content=[{"type": "binary", "mimeType": "image/png", "data": ""}]),
            "messages[1].content[0] must have data, url or id",
        ),
        (user(content="Hi", name=7), "messages[1].name must be a string"),
        (user(content="Hi", metadata=[]), "messages[1].metadata must be an object"),
        (
            {"id": "a", "role": "assistant", "content": [{"type": "binary", "id": "f"}]},
            "messages[1].content[0].mimeType must be a string",
        ),
        (
            {
                "id": "a",
                "role": "assistant",
                "content": [{"type": "binary", "id": "f", "mimeType": "a/b"}],
            },
            "messages[1].content must be text: only users send more",
        ),
        ({"id": "a", "role": "system", "content": 7}, "messages[1].content must be a string"),
        (
            {"id": "a", "role": "assistant", "toolCalls": {"id": "c"}},
            "messages[1].toolCalls must be a list",
        ),
        (
            {"id": "a", "role": "assistant", "toolCalls": [{"id": "c"}]},
            "messages[1].toolCalls[0].function must be an object",
        ),
        (
            {"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "function": {}}]},
            "messages[1].toolCalls[0].function.name must be a string",
        ),
        ({"id": "t", "role": "tool", "content": ""}, "messages[1].toolCallId must be a string"),
        (
            {"id": "x", "role": "activity", "activityType": "A", "content": "text"},
            "messages[1].content must be an object",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(message: Any, complaint: str):
    with pytest.raises(Misuse) as caught:
        decode_messages([user(content="Hi"), message])
    assert caught.value.message == f"{complaint}."


def test_a_long_conversation_with_deep_values_is_read():
    deep: Any = {}
    for _ in range(900):
        deep = {"in": deep}
    messages = [user(content="Hi")] * 10_000
    activity = {"id": "a", "role": "activity", "activityType": "A", "content": deep}

    decoded = decode_messages([*messages, activity])

    assert len(decoded) == 10_001
    assert isinstance(decoded[-1], ActivityMessage)
    assert decoded[-1].content is deep
