"""Conversations of any kind, as providers accept them."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.adapters.attachments import IMAGE_TOKENS
from copilot_runtime.adapters.history import (
    NO_RESULT,
    HistoryItem,
    Thought,
    ToolExchange,
    repair_history,
    truncate_history,
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
    Role,
    TextMessage,
    TextPart,
)

IDS = st.sampled_from(["", "a", "b", "c", "d"])
ROLES: st.SearchStrategy[Role] = st.sampled_from(
    ["user", "assistant", "system", "developer", "tool"]
)
TEXTS = st.text(max_size=40)
PARTS = st.lists(
    st.one_of(
        st.builds(TextPart, text=TEXTS),
        st.builds(
            MediaPart,
            value=TEXTS | st.sampled_from(["data:text/plain,%zz", "http://[x", "data:;base64,=="]),
            mime_type=st.sampled_from([None, "", "text/plain", "video/mp4", "IMAGE/png; a=b"]),
            metadata=st.none() | st.dictionaries(st.just("filename"), TEXTS | st.integers()),
        ),
    ),
    max_size=3,
)
MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(TextMessage, id=IDS, role=ROLES, content=TEXTS),
        st.builds(TextMessage, id=IDS, role=ROLES, content=TEXTS, parts=PARTS),
        st.builds(ImageMessage, id=IDS, role=ROLES, format=TEXTS, bytes=TEXTS),
        st.builds(ActionExecutionMessage, id=IDS, name=IDS, arguments=TEXTS),
        st.builds(ResultMessage, id=IDS, call_id=IDS, name=IDS, result=TEXTS),
        st.builds(AgentStateMessage, id=IDS, agent=IDS, state=st.just({})),
    ),
    max_size=20,
)


def said(text: str, role: Role = "user") -> TextMessage:
    return TextMessage(id=text[:3], role=role, content=text)


def call(id: str, arguments: str = "{}") -> ActionExecutionMessage:
    return ActionExecutionMessage(id=id, name="act", arguments=arguments)


def result(id: str, text: str = "done") -> ResultMessage:
    return ResultMessage(id=f"result-{id}", call_id=id, name="act", result=text)


def size(items: Sequence[HistoryItem]) -> int:
    """Return the characters of texts and exchanges."""
    return sum(
        len(item.content)
        if isinstance(item, TextMessage)
        else len(item.call.name) + len(item.call.arguments) + len(item.result.result)
        if isinstance(item, ToolExchange)
        else IMAGE_TOKENS * 3
        for item in items
    )


@given(MESSAGES)
def test_every_call_stands_once_and_with_its_first_result(messages: list[Message]):
    exchanges = [item for item in repair_history(messages) if isinstance(item, ToolExchange)]

    ids = [exchange.call.id for exchange in exchanges]
    assert len(ids) == len(set(ids))
    for exchange in exchanges:
        results = [
            message
            for message in messages
            if isinstance(message, ResultMessage) and message.call_id == exchange.call.id
        ]
        assert exchange.result == results[0] if results else exchange.result.result == NO_RESULT


@given(MESSAGES)
def test_what_a_user_says_is_kept_in_order(messages: list[Message]):
    def of_user(items: Sequence[Message | HistoryItem]) -> list[TextMessage]:
        return [item for item in items if isinstance(item, TextMessage) and item.role == "user"]

    assert of_user(repair_history(messages)) == of_user(messages)


@given(MESSAGES, st.integers(min_value=-10, max_value=100))
def test_a_conversation_that_was_cut_is_a_part_of_it_and_keeps_what_matters(
    messages: list[Message], tokens: int
):
    items = repair_history(messages)
    kept = truncate_history(items, tokens)

    places = iter(items)
    assert all(any(item == place for place in places) for item in kept)
    texts = [item for item in items if isinstance(item, TextMessage)]
    for item in texts:
        assert item in kept or item.role not in ("system", "developer")
    of_user = [item for item in items if getattr(item, "role", None) == "user"]
    assert not of_user or of_user[-1] in kept
    assert truncate_history(kept, tokens) == kept


def test_results_out_of_order_find_their_calls():
    messages = [result("b"), said("Hi"), call("a"), call("b"), said("Hm", "assistant"), result("a")]
    assert repair_history(messages) == [
        said("Hi"),
        ToolExchange(call("a"), result("a")),
        ToolExchange(call("b"), result("b")),
        said("Hm", "assistant"),
    ]


def test_results_without_a_call_and_second_results_are_dropped():
    messages = [call("a"), result("a"), result("a", "again"), result("nobody's")]
    assert repair_history(messages) == [ToolExchange(call("a"), result("a"))]


def test_a_call_without_a_result_says_so():
    assert repair_history([call("a"), said("Go on")]) == [
        ToolExchange(call("a"), result("a", NO_RESULT)),
        said("Go on"),
    ]


def test_empty_texts_of_the_model_and_what_no_provider_knows_are_dropped():
    messages: list[Message] = [
        said("", "assistant"),
        said(" \n", "system"),
        said("result", "tool"),
        AgentStateMessage(id="s", agent="a", state={}),
        ReasoningMessage(id="r", content="Hm."),
        ActivityMessage(id="p", activity_type="plan", content={}),
        said(""),
    ]
    assert repair_history(messages) == [said("")]


def test_arguments_are_always_an_object():
    texts = ["", '{"a": 1}', "[1]", '{"a":', "\ud83d"]
    exchanges = repair_history([call(str(number), text) for number, text in enumerate(texts)])
    assert [item.call.arguments for item in exchanges if isinstance(item, ToolExchange)] == [
        "{}",
        '{"a": 1}',
        '{"unreadable":"[1]"}',
        '{"unreadable":"{\\"a\\":"}',
        '{"unreadable":"?"}',
    ]


def test_the_oldest_messages_go_first_and_instructions_never():
    items: list[HistoryItem] = [
        said("sys", "system"),
        said("1" * 90),
        said("2" * 90),
        said("3" * 90),
    ]
    assert truncate_history(items, 62) == [items[0], items[2], items[3]]


def test_a_message_that_does_not_fit_hides_all_before_it():
    items: list[HistoryItem] = [said("1"), said("2" * 900), said("3")]
    assert truncate_history(items, 100) == [said("3")]


def test_a_call_goes_together_with_its_result():
    exchange = ToolExchange(call("a"), result("a", "x" * 300))
    assert truncate_history([said("1"), exchange, said("2")], 90) == [said("2")]


def test_an_image_costs_what_an_image_costs():
    image = ImageMessage(id="i", role="user", format="png", bytes="A" * 10_000_000)
    assert truncate_history([image, said("What is this?")], IMAGE_TOKENS + 10) == [
        image,
        said("What is this?"),
    ]


def test_attachments_cost_what_they_are_and_not_what_their_text_is_long():
    image = MediaPart(kind="image", source="data", value="A" * 1_000_000)
    speech = MediaPart(kind="audio", source="data", value="A" * 1_000_000, mime_type="audio/wav")
    parts = [TextPart(text="Compare"), image, speech]
    shown = TextMessage(id="u1", role="user", content="Compare", parts=parts)
    tokens = IMAGE_TOKENS + 500 + 10

    assert truncate_history([shown, said("And now?")], tokens) == [shown, said("And now?")]
    assert truncate_history([shown, said("And now?")], tokens - 10) == [said("And now?")]


def test_huge_results_of_this_turn_are_shortened_and_never_dropped():
    items: list[HistoryItem] = [
        said("old"),
        said("Go"),
        ToolExchange(call("a"), result("a", "a" * 50_000)),
        ToolExchange(call("b"), result("b", "b" * 100)),
    ]
    kept = truncate_history(items, 1_500)

    assert [type(item) for item in kept] == [TextMessage, ToolExchange, ToolExchange]
    assert kept[2] == items[3]
    assert size(kept) < 4_600
    shortened = kept[1]
    assert isinstance(shortened, ToolExchange)
    assert "characters left out" in shortened.result.result


def test_one_huge_question_is_sent_as_it_is():
    items: list[HistoryItem] = [said("old"), said("x" * 1_000_000)]
    assert truncate_history(items, 1_000) == [items[1]]


def test_a_thought_that_led_to_nothing_is_dropped():
    question = TextMessage(id="u1", role="user", content="Hm?")
    rules = TextMessage(id="s1", role="system", content="Be kind.")
    answer = TextMessage(id="a1", role="assistant", content="Yes.")
    thoughts = [ReasoningMessage(id=f"t{n}", content="", signature="acme:{}") for n in range(3)]
    history = [question, thoughts[0], question, thoughts[1], rules, answer, thoughts[2]]

    kept = repair_history(history, "acme")

    assert [item.id for item in kept if isinstance(item, Thought)] == ["t1"]


def test_half_a_character_makes_no_arguments_unreadable():
    call = ActionExecutionMessage(id="c", name="say", arguments=r'{"text":"\ud83d"}')
    (exchange,) = repair_history([call])
    assert isinstance(exchange, ToolExchange)
    assert exchange.call == call
