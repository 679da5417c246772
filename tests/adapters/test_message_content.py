"""Messages, tools and calls as content attributes, as the GenAI conventions define them."""

from typing import Any

import orjson

from copilot_runtime.adapters.message_content import (
    render_answer,
    render_messages,
    render_request,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    AgentStateMessage,
    ImageMessage,
    MediaPart,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.telemetry.content import MAX_CHARACTERS, render_text, render_tools
from tests.in_one_test import in_one_test


def user(text: str, **more: Any) -> TextMessage:
    return TextMessage(id="u", role="user", content=text, **more)


def test_a_conversation_keeps_its_order_and_an_assistants_words_and_calls_are_one_message() -> None:
    messages: list[Message] = [
        user("Hi", name="Ada"),
        ReasoningMessage(id="r", content="Hm."),
        TextMessage(id="a", role="assistant", content="I look."),
        ActionExecutionMessage(id="c", name="look", arguments='{"at": "sea"}'),
        ResultMessage(id="x", call_id="c", name="look", result="blue"),
        AgentStateMessage(id="s", agent="a", state={"n": 1}),
        ActivityMessage(id="v", activity_type="sources", content={}),
        TextMessage(id="b", role="assistant", content="Blue."),
    ]
    call = {"type": "tool_call", "id": "c", "name": "look", "arguments": {"at": "sea"}}
    response = {"type": "tool_call_response", "id": "c", "response": "blue"}
    assert render_messages(messages) == [
        {"role": "user", "parts": [{"type": "text", "content": "Hi"}], "name": "Ada"},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm."},
                {"type": "text", "content": "I look."},
                call,
            ],
        },
        {"role": "tool", "parts": [response]},
        {"role": "assistant", "parts": [{"type": "text", "content": "Blue."}]},
    ]


@in_one_test(
    ("part", "rendered"),
    [
        (TextPart(text="See:"), {"type": "text", "content": "See:"}),
        (
            MediaPart(kind="image", source="data", value="QQ==", mime_type="image/png"),
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "QQ=="},
        ),
        (
            MediaPart(kind="audio", source="url", value="https://a.example/b"),
            {"type": "uri", "modality": "audio", "uri": "https://a.example/b"},
        ),
        (
            MediaPart(kind="document", source="id", value="file-1", metadata={"filename": "a.csv"}),
            {
                "type": "file",
                "modality": "document",
                "file_id": "file-1",
                "filename": "a.csv",
            },
        ),
    ],
)
def test_each_part_has_its_type(part: TextPart | MediaPart, rendered: Any) -> None:
    (message,) = render_messages([user("", parts=[part])])
    assert message["parts"] == [rendered]


def test_an_image_is_a_blob() -> None:
    image = ImageMessage(id="i", role="user", format="png", bytes="QQ==")
    (part,) = render_messages([image])[0]["parts"]
    assert part == {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "content": "QQ==",
    }


def test_instructions_are_the_system_messages_before_all_others() -> None:
    system = TextMessage(id="s", role="system", content="Be kind.")
    instructions, messages = render_request([system, user("Hi"), system])
    assert instructions == [{"type": "text", "content": "Be kind."}]
    assert [message["role"] for message in messages] == ["user", "system"]


def test_of_a_long_conversation_the_newest_messages_count() -> None:
    _, messages = render_request([user(str(number)) for number in range(1000)])
    assert messages[0]["parts"] == [{"type": "omitted", "count": 800}]
    assert messages[-1]["parts"][0]["content"] == "999"


def test_a_long_conversation_is_bounded_and_all_of_it_is_json() -> None:
    _, messages = render_request([user("word " * 10_000) for _ in range(1000)])
    assert len(orjson.dumps(messages).decode()) <= MAX_CHARACTERS
    assert {message["role"] for message in messages} == {"system", "user"}


@in_one_test(
    ("stop_reason", "told"),
    [
        ("stop", "stop"),
        ("tool_calls", "tool_call"),
        ("refusal", "content_filter"),
        ("pause", "pause"),
        (None, "error"),
    ],
)
def test_an_answer_says_why_it_ended(stop_reason: str | None, told: str) -> None:
    answer = TextMessage(id="a", role="assistant", content="Hello")
    assert render_answer([answer], stop_reason) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Hello"}],
            "finish_reason": told,
        }
    ]


@in_one_test(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        (" [1]", [1]),
        ("3", "3"),
        ("{broken", "{broken"),
        ("half \ud83d", "half \ufffd"),
        ("", ""),
    ],
)
def test_json_of_a_call_is_read_and_other_text_stays(text: str, value: Any) -> None:
    assert render_text(text) == value


def test_a_result_that_is_much_too_long_is_cut_and_not_read() -> None:
    cut = render_text(orjson.dumps(["word"] * 1_000_000).decode())
    assert cut.startswith('["word","word"')
    assert len(cut) <= MAX_CHARACTERS


def test_tools_have_name_description_and_schema() -> None:
    assert render_tools([("add", "Adds.", {"type": "object"})]) == [
        {
            "type": "function",
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object"},
        }
    ]
