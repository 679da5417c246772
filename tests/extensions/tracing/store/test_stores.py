"""What every store of traces does."""

import json

import pytest

from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.extensions.tracing.mermaid import draw_sequence
from copilot_runtime.extensions.tracing.stats import compute_stats, diff_traces
from copilot_runtime.extensions.tracing.store import TraceFilter, TraceStore
from copilot_runtime.extensions.tracing.waterfall import draw_waterfall
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.store import make_chat, make_span
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def list_ids(store: TraceStore, filter: TraceFilter | None = None) -> list[str]:
    found = await store.list_traces(filter or TraceFilter())
    return [summary.trace_id for summary in found]


async def test_a_trace_is_found_by_its_id_with_its_spans_by_their_start(store: TraceStore) -> None:
    store.add(make_span("t1", "b", start=200))
    store.add(make_span("t1", "a", start=100))
    store.add(make_span("t2", "c"))

    assert [span["span_id"] for span in await store.get_trace("t1")] == ["a", "b"]
    assert await store.get_trace("none") == []


async def test_a_span_that_comes_again_takes_its_place_and_is_counted_once(
    store: TraceStore,
) -> None:
    store.add(make_chat("t1", "a", {semconv.USAGE_INPUT_TOKENS: 5, semconv.AGENT_NAME: "one"}))
    store.add(make_span("t1", "b", start=300))
    await store.flush()
    store.add(make_chat("t1", "a", {semconv.USAGE_INPUT_TOKENS: 7, semconv.AGENT_NAME: "two"}))

    [first, _] = await store.get_trace("t1")
    [summary] = await store.list_traces()

    assert first["attributes"][semconv.USAGE_INPUT_TOKENS] == 7
    assert (summary.spans, summary.model_calls, summary.input_tokens) == (2, 1, 7)
    assert await list_ids(store, TraceFilter(agent="one")) == []


async def test_a_rating_is_in_the_summary_and_changes_with_its_span(store: TraceStore) -> None:
    for rating in ("up", "down", "up"):
        store.add(make_span("t1", "a", attributes={semconv.FEEDBACK_RATING: rating}))
        await store.flush()
        [summary] = await store.list_traces()
        assert summary.rating == rating
    store.add(make_span("t2", "a"))
    for odd in ("maybe", 1, ["up"], {"up": "down"}):
        store.add(make_span("t2", "b", attributes={semconv.FEEDBACK_RATING: odd}))
    assert await list_ids(store, TraceFilter(rating="up")) == ["t1"]
    assert await list_ids(store, TraceFilter(rating="down")) == []

    store.add(make_span("t1", "b", attributes={semconv.FEEDBACK_RATING: "down"}))
    assert await list_ids(store, TraceFilter(rating="down")) == ["t1"]


@in_one_test(
    ("text", "is_found"),
    [
        ("oslo", True),
        ('said "Sorry', True),
        ("two\nlines", True),
        ("Ærø", True),
        ("find", True),
        ("fits badly", True),
        ("T1-0", True),
        ("t1-0000", True),
        ("t1", False),  # too short for an id
        ("1-0000", False),
        ("BCF2", True),
        ("bcf28d", True),
        ("f28d", False),
        ("f28", False),
        ("assistant", False),
        ("tool_call", False),
        ("whose BIRD is", True),
        ("prompt", False),
    ],
)
@in_one_test("is_text", [False, True])
async def test_a_text_finds_questions_and_answers_that_are_kept_and_the_beginning_of_an_id(
    store: TraceStore, text: str, *, is_found: bool, is_text: bool
) -> None:
    call = {"type": "tool_call", "id": "c", "name": "find", "arguments": {"city": ["Oslo", 1]}}
    said = {"type": "text", "content": 'He said "Sorry", in two\nlines, from Ærø'}
    answer = [{"role": "assistant", "finish_reason": "stop", "parts": [said, call]}]
    content = {
        semconv.OUTPUT_MESSAGES: json.dumps(answer, ensure_ascii=False) if is_text else answer,
        semconv.INPUT_MESSAGES: [
            {"role": "system", "parts": [{"type": "text", "content": "a prompt"}]},
            {"role": "user", "parts": [{"type": "text", "content": "Whose\nbird is it?"}]},
        ],
        semconv.FEEDBACK_COMMENT: "[It fits badly",
    }
    ids = {semconv.CONVERSATION_ID: "bcf28d", semconv.RUN_ID: "c0f28d"}
    store.add(make_span("t1-00000", "f28d", content=content, attributes=ids))
    assert await list_ids(store, TraceFilter(text=text)) == ["t1-00000"] * is_found


FILE = {"type": "blob", "modality": "document", "content": "TVRJ", "filename": "sales.csv"}
WORDS = {"type": "text", "content": "Which month?"}


@in_one_test(
    ("parts", "question"),
    [
        ([WORDS, FILE], "Which month?"),
        ([FILE, WORDS], "Which month?"),
        ([WORDS, FILE | {"modality": "image", "filename": "sales.png"}], "Which month?"),
        ([FILE], "sales.csv"),
    ],
)
@in_one_test("is_text", [False, True])
async def test_a_trace_has_the_words_of_the_person_or_the_name_of_the_file_as_its_question(
    store: TraceStore, parts: list[dict[str, str]], question: str, *, is_text: bool
) -> None:
    result = {"type": "tool_call_response", "id": "c", "response": "done"}
    asked = [{"role": "user", "parts": parts}, {"role": "tool", "parts": [result]}]
    content = {semconv.INPUT_MESSAGES: json.dumps(asked) if is_text else asked}
    store.add(make_span("t1", "a", "invoke_agent a", content=content))
    assert [summary.question for summary in await store.list_traces()] == [question]


async def test_a_trace_in_many_batches_is_counted_as_a_whole(store: TraceStore) -> None:
    for number in range(5):
        store.add(make_chat("t1", f"s{number}", {semconv.REQUEST_MODEL: "m"}, start=100 + number))
        await store.flush()
    store.add(
        make_span("t1", "root", "invoke_agent a", start=90, attributes={semconv.AGENT_NAME: "a"})
    )

    [summary] = await store.list_traces()

    assert (summary.name, summary.agent, summary.spans) == ("invoke_agent a", "a", 6)
    assert (summary.start, summary.end) == (90, 114)
    assert (summary.model_calls, summary.models) == (5, ["m"])


async def test_traces_are_listed_by_their_start_and_page_by_page(store: TraceStore) -> None:
    for trace, start in (("t1", 300), ("t2", 100), ("t3", 200), ("t4", 200)):
        store.add(make_span(trace, "s", start=start))

    assert await list_ids(store) == ["t1", "t4", "t3", "t2"]
    page = await store.list_traces(limit=2, before="t1")
    assert [one.trace_id for one in page] == ["t4", "t3"]
    assert await store.list_traces(before="none") == []
    assert await store.list_traces(limit=0) == []


@in_one_test(
    ("filter", "ids"),
    [
        (TraceFilter(trace_id="t1"), ["t1"]),
        (TraceFilter(thread_id="th1"), ["t2", "t1"]),
        (TraceFilter(resource_id="th1"), ["t2", "t1"]),
        (TraceFilter(resource_id="common.Conversation.th1"), ["t2", "t1"]),
        (TraceFilter(resource_id="common.Agent.x"), ["t3"]),
        (TraceFilter(thread_id="common.Conversation.th1"), []),
        (TraceFilter(run_id="r2"), ["t2"]),
        (TraceFilter(agent="sub"), ["t1"]),
        (TraceFilter(agent="main"), ["t1"]),
        (TraceFilter(user="ann"), ["t1"]),
        (TraceFilter(user="an"), []),
        (TraceFilter(since=1_500), ["t3", "t2"]),
        (TraceFilter(until=1_000), ["t1"]),
        (TraceFilter(has_error=True), ["t2"]),
        (TraceFilter(has_error=False), ["t3", "t1"]),
        (TraceFilter(min_duration=1.0), ["t3"]),
        (TraceFilter(text="GPT-4%"), ["t2"]),
        (TraceFilter(text="gpt"), ["t2", "t1"]),
        (TraceFilter(text="größe"), ["t3"]),
        (TraceFilter(text="ÖSSE"), []),
        (TraceFilter(text='a "quoted\\name"'), ["t3"]),
        (TraceFilter(thread_id="th1", has_error=False), ["t1"]),
        (TraceFilter(text="attributes"), []),
    ],
)
async def test_a_filter_says_which_traces_are_meant(
    store: TraceStore, filter: TraceFilter, ids: list[str]
) -> None:
    thread, run, agent = semconv.CONVERSATION_ID, semconv.RUN_ID, semconv.AGENT_NAME
    asked = {agent: "main", semconv.USER_NAME: "ann"}
    store.add(make_span("t1", "root", start=1_000, attributes=asked))
    store.add(
        make_span("t1", "x", "chat gpt", parent_id="root", start=1_010, attributes={agent: "sub"})
    )
    store.add(make_span("t1", "y", parent_id="root", start=1_020, attributes={thread: "th1"}))
    about = {thread: "th2", run: "r2", semconv.REQUEST_MODEL: "gpt-4%_"}
    store.add(make_span("t2", "root", start=2_000, error="boom", attributes=about))
    store.add(make_span("t2", "x", parent_id="root", start=2_000, attributes={thread: "th1"}))
    store.add(make_span("t3", "root", "GRÖẞE Größe", start=3_000, end=2 * 10**9))
    store.add(
        make_span(
            "t3",
            "x",
            'a "quoted\\name"',
            parent_id="root",
            start=3_000,
            resource={"id": "common.Agent.x"},
        )
    )

    assert sorted(await list_ids(store, filter)) == sorted(ids)
    assert {span["trace_id"] for span in await store.query_spans(filter=filter)} == set(ids)


async def test_a_query_returns_whole_traces_the_newest_if_there_is_a_limit(
    store: TraceStore,
) -> None:
    for trace in range(5):
        store.add(make_span(f"t{trace}", "a", start=100 * trace + 1, error="boom"))
        store.add(make_span(f"t{trace}", "b", start=100 * trace + 2))
    store.add(make_span("fine", "a", start=1_000))

    for query in ("[?status.code==`2`]", "[?status.code==`2`].name", "[0].status.code == `2`"):
        found = await store.query_spans(query, limit=2)
        assert [(one["trace_id"], one["span_id"]) for one in found] == [
            ("t3", "a"),
            ("t3", "b"),
            ("t4", "a"),
            ("t4", "b"),
        ]
        assert len(await store.query_spans(query)) == 10
    assert await store.query_spans("[?status.code==`2`]", TraceFilter(has_error=False)) == []


async def test_a_wrong_query_says_what_is_wrong(store: TraceStore) -> None:
    with pytest.raises(Misuse) as wrong:
        await store.query_spans("[?")
    assert wrong.value.message == 'Invalid token (EOF): ""'
    with pytest.raises(LimitExceeded, match="too long"):
        await store.query_spans("[" * 60)


async def test_a_search_for_a_text_ends_as_well(
    store: TraceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        store.add(make_span(f"t{number}", "a"))
    assert len(await list_ids(store, TraceFilter(text="WORK"))) == 10
    monkeypatch.setattr("copilot_runtime.extensions.tracing.store.query.MAX_SECONDS", -1.0)
    for steps in (1_000_000, 1):
        monkeypatch.setattr(
            "copilot_runtime.extensions.tracing.store.sqlite._STEPS_OF_SQLITE", steps
        )
        with pytest.raises(LimitExceeded, match="took longer"):
            await store.list_traces(TraceFilter(text="WORK"))
        with pytest.raises(LimitExceeded, match="took longer"):
            await store.query_spans("[?name=='work']")
    assert len(await list_ids(store)) == 10


async def test_a_trace_can_be_deleted(store: TraceStore) -> None:
    store.add(make_span("t1", "a", resource={"id": "x"}))
    store.add(make_span("t2", "a"))

    assert await store.delete_trace("t1") is True
    assert await store.delete_trace("t1") is False
    assert await list_ids(store) == ["t2"]
    assert await list_ids(store, TraceFilter(resource_id="x")) == []


async def test_traces_that_ended_before_a_time_are_deleted(store: TraceStore) -> None:
    store.add(make_span("old", "a", start=100))
    store.add(make_span("long", "a", start=100))
    store.add(make_span("long", "b", start=500))
    store.add(make_span("new", "a", start=500))

    assert await store.delete_traces(before=500) == 1
    assert await list_ids(store) == ["new", "long"]


async def test_what_json_cannot_hold_becomes_text(store: TraceStore) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError

    loop: list[object] = []
    loop.append(loop)
    values = {
        "half": "\ud800",
        "large": 2**80,
        "object": Broken(),
        "tuple": (1, 2.5, None, True),
        "loop": loop,
    }
    store.add(make_span("t1", "a", "\ud800", attributes=values))
    store.add(make_span("t1", "b", attributes={semconv.USAGE_INPUT_TOKENS: 2**80}))
    store.add(make_span("\ud800", "b"))

    assert len(await store.get_trace("t1")) == 2
    assert len(await store.list_traces()) == 2
    assert len(await store.query_spans("[?name]")) == 3


@in_one_test("value", [{"a": [1]}, [{"b": 2}], True, -1.5, "", "x" * 5_000])
async def test_other_programs_may_write_anything_by_our_names(
    store: TraceStore, value: object
) -> None:
    for number, name in enumerate(semconv.ATTRIBUTES):
        store.add(make_span("all", f"{number}", attributes={name: value}))
    store.add(make_span("chat", "1", attributes=dict.fromkeys(semconv.ATTRIBUTES, value)))
    chat = {**dict.fromkeys(semconv.ATTRIBUTES, value), semconv.OPERATION_NAME: semconv.CHAT}
    store.add(make_span("chat", "2", error="E", attributes=chat, resource={"id": value}))

    spans = await store.query_spans("[?attributes]")

    assert len(spans) == len(semconv.ATTRIBUTES) + 2
    counts = {summary.trace_id: summary.spans for summary in await store.list_traces()}
    assert counts == {"all": len(semconv.ATTRIBUTES), "chat": 2}
    assert store.dropped == 0
    assert compute_stats(spans).spans == len(spans)
    for draw in (draw_waterfall, draw_sequence):
        assert draw(spans)
    assert diff_traces(spans, spans)
