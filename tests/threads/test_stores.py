"""What every store of threads does."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import (
    ActionExecutionResult,
    Activity,
    Custom,
    Event,
    MessagesSnapshot,
    ReasoningEnd,
    ReasoningStart,
    RunFinished,
    RunStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ActivityMessage,
    Message,
    ReasoningMessage,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import Misuse, NotFound, ThreadBusy
from copilot_runtime.threads.compact import compact
from copilot_runtime.threads.store import Segment, ThreadKey, ThreadQuery, ThreadStore
from tests.in_one_test import in_one_test
from tests.threads.recorded import KEY, listed, log_of, run_of, threads, told, user

pytestmark = pytest.mark.anyio


async def test_stored_bytes_are_counted_by_owner_and_by_a_common_beginning(
    store: ThreadStore,
) -> None:
    for owner in ("tenant:a/ann", "tenant:a/bob", "tenant:ab/ann"):
        await told(store, run_of(key=KEY._replace(owner=owner)))
    one = await store.count_bytes("tenant:a/ann")

    assert one > 0
    assert await store.count_bytes("tenant:a/", is_prefix=True) == 2 * one
    assert await store.count_bytes("tenant:a/") == 0
    await store.delete(KEY._replace(owner="tenant:a/ann"))
    assert await store.count_bytes("tenant:a/", is_prefix=True) == one


async def test_a_new_run_makes_its_thread(store: ThreadStore) -> None:
    before = datetime.now(UTC)
    await store.begin(run_of(agent="poet"))
    thread = await store.get(KEY)

    assert thread
    assert (thread.key, thread.agent, thread.name, thread.archived) == (KEY, "poet", None, False)
    assert thread.created_at == thread.updated_at == thread.last_run_at
    assert before - timedelta(seconds=1) < thread.created_at <= datetime.now(UTC)


async def test_an_ended_run_is_kept_short(store: ThreadStore) -> None:
    run = run_of(agent="poet", log_id="r#1")
    await told(store, run)
    [kept] = await store.runs(KEY)

    assert (kept.log_id, kept.run_id, kept.agent, kept.ended) == ("r#1", "r", "poet", True)
    assert kept.events == compact(log_of(run, new=[user()]))
    assert TextMessageContent(message_id="m-r", content="Hello") in kept.events


async def test_a_run_that_goes_on_is_read_as_far_as_it_was_written(store: ThreadStore) -> None:
    run = run_of()
    log = log_of(run, new=await store.begin(run))
    await store.write([Segment(log_id="r", events=log[:2]), Segment(log_id="r", events=log[2:3])])
    [kept] = await store.runs(KEY)

    assert (kept.ended, kept.events) == (False, log[:3])


async def test_the_question_is_kept_before_the_first_event(store: ThreadStore) -> None:
    await store.begin(run_of())
    [kept] = await store.runs(KEY)

    assert kept.events == [RunStarted(run_id="r", thread_id="t", messages=[user()])]


async def test_runs_come_back_in_the_order_they_began(store: ThreadStore) -> None:
    for number in range(5):
        await told(store, run_of(run_id=f"r{number}"))

    assert [run.run_id for run in await store.runs(KEY)] == ["r0", "r1", "r2", "r3", "r4"]


async def test_two_runs_of_a_thread_may_share_an_id(store: ThreadStore) -> None:
    await told(store, run_of(log_id="one"))
    await told(store, run_of(log_id="two"))

    assert [(run.run_id, run.log_id) for run in await store.runs(KEY)] == [
        ("r", "one"),
        ("r", "two"),
    ]


async def test_segments_of_many_runs_are_written_together(store: ThreadStore) -> None:
    runs = [run_of(key, run_id=f"r-{key.id}") for key in threads("a", "b", "c")]
    for run in runs:
        await store.begin(run)
    logs = [log_of(run) for run in runs]
    await store.write(
        [
            *(
                Segment(log_id=run.log_id, events=log[:2])
                for run, log in zip(runs, logs, strict=True)
            ),
            Segment(log_id="r-b", events=logs[1][2:], whole=logs[1]),
        ]
    )
    kept = [(await store.runs(key))[0] for key in threads("a", "b", "c")]

    assert [run.ended for run in kept] == [False, True, False]
    assert [run.events for run in kept] == [logs[0][:2], compact(logs[1]), logs[2][:2]]


async def test_events_come_back_as_they_were(store: ThreadStore) -> None:
    run = run_of()
    text = "Grüße 👋 \0 \u2028"
    odd: list[Event] = [
        *say(text),
        Custom(name="all", value={"a": [None, True, 1.5, 2**70], "b": text}),
    ]
    await told(store, run, *odd)
    [kept] = await store.runs(KEY)

    assert TextMessageContent(message_id="message-1", content=text) in kept.events
    [custom] = [event for event in kept.events if isinstance(event, Custom)]
    assert custom.value["a"] == [None, True, 1.5, pytest.approx(2**70)]
    assert custom.value["b"] == text


async def test_halves_of_an_emoji_meet_again_at_the_end(store: ThreadStore) -> None:
    await told(store, run_of(), *say(["\ud83d", "\udc4b"]))
    [kept] = await store.runs(KEY)

    text = "".join(event.content for event in kept.events if isinstance(event, TextMessageContent))
    assert text.encode("utf-16-le", "surrogatepass").decode("utf-16-le") == "👋"


async def test_only_new_messages_of_a_request_are_returned(store: ThreadStore) -> None:
    first = await told(store, run_of(messages=[user("u1")]))
    answer = TextMessage(id="m-r", role="assistant", content="Hello")
    again = [user("u1"), answer, user("u2"), user("u2", "twice")]

    assert first == [user("u1")]
    assert await told(store, run_of(run_id="r2", messages=again)) == [user("u2")]


@pytest.mark.parametrize(
    ("made", "sent"),
    [
        (say("x", id="m"), TextMessage(id="m", role="assistant", content="x")),
        (call("f", id="c"), ActionExecutionMessage(id="c", name="f", arguments="{}")),
        (
            call("f", id="c", parent_id="holder"),
            TextMessage(id="holder", role="assistant", content=""),
        ),
        (
            [ActionExecutionResult(call_id="c", name="f", result="1")],
            ResultMessage(id="result-c", call_id="c", name="f", result="1"),
        ),
        (
            [ActionExecutionResult(call_id="c", name="f", result="1", message_id="own")],
            ResultMessage(id="own", call_id="c", name="f", result="1"),
        ),
        (
            [ReasoningStart(message_id="th"), ReasoningEnd(message_id="th")],
            ReasoningMessage(id="th", content=""),
        ),
        (
            [Activity(message_id="act", activity_type="plan", content={})],
            ActivityMessage(id="act", activity_type="plan", content={}),
        ),
        ([MessagesSnapshot(messages=[user("snap")])], user("snap")),
        (say("x", id="ü" * 900), TextMessage(id="ü" * 900, role="assistant", content="x")),
    ],
    ids=[
        "text",
        "call",
        "holder",
        "result",
        "own result",
        "thought",
        "activity",
        "snapshot",
        "long",
    ],
)
async def test_what_a_run_made_is_not_new(
    store: ThreadStore, made: Sequence[Event], sent: Message
) -> None:
    await told(store, run_of(), *made)

    assert await store.begin(run_of(run_id="r2", messages=[sent, user("next")])) == [user("next")]


async def test_a_result_with_the_id_of_its_call_is_new(store: ThreadStore) -> None:
    await told(store, run_of(), *call("f", id="c"))
    result = ResultMessage(id="c", call_id="c", name="f", result="1")

    assert await store.begin(run_of(run_id="r2", messages=[result])) == [result]


async def test_a_busy_thread_refuses_a_second_run_until_the_first_has_ended(
    store: ThreadStore,
) -> None:
    run = run_of()
    await store.begin(run)
    with pytest.raises(ThreadBusy, match="still being answered"):
        await store.begin(run_of(run_id="r2", messages=[user("u2")]))
    log = log_of(run)
    await store.write([Segment(log_id="r", events=log, whole=log)])

    assert await store.begin(run_of(run_id="r2", messages=[user("u2")])) == [user("u2")]
    assert len(await store.runs(KEY)) == 2


async def test_of_fifty_runs_at_once_exactly_one_begins(store: ThreadStore) -> None:
    runs = [run_of(run_id=f"r{number}") for number in range(50)]
    outcomes = await asyncio.gather(*map(store.begin, runs), return_exceptions=True)

    assert outcomes.count([user()]) == 1
    assert sum(isinstance(outcome, ThreadBusy) for outcome in outcomes) == 49
    assert len(await store.runs(KEY)) == 1


async def test_a_begin_that_nobody_waits_for_leaves_the_thread_free(store: ThreadStore) -> None:
    task = asyncio.create_task(store.begin(run_of()))
    await asyncio.sleep(0)  # it has asked
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():  # a store that need not wait cannot be interrupted
        assert await task == [user()]
        return
    outcome: object = None
    while outcome is None:  # until what has been done is undone
        with suppress(ThreadBusy):
            outcome = await store.begin(run_of(run_id="r2"))

    assert outcome == [user()]


async def test_the_name_of_a_log_is_taken_while_its_run_goes_on(store: ThreadStore) -> None:
    one, other = threads("one", "other")
    await store.begin(run_of(one))
    with pytest.raises(Misuse, match="has not ended"):
        await store.begin(run_of(other))

    assert await store.runs(other) == []


async def test_the_same_id_is_another_thread_for_another_owner(store: ThreadStore) -> None:
    await told(store, run_of())
    bobs = ThreadKey("bob", "t")

    assert (await store.get(bobs), await store.runs(bobs)) == (None, [])
    assert (await store.delete(bobs), await store.update(bobs, name="Mine")) == (False, None)
    assert await listed(store, ThreadQuery(owner="bob")) == []
    assert await store.begin(run_of(bobs, run_id="other")) == [user()]
    assert await listed(store) == ["t"]


async def test_a_name_is_given_and_taken_away(store: ThreadStore) -> None:
    await store.begin(run_of())
    named = await store.update(KEY, name="Trip 🏔")
    archived = await store.update(KEY, archived=True)
    nameless = await store.update(KEY, name="")

    assert named and archived and nameless
    assert (named.name, named.archived) == ("Trip 🏔", False)
    assert (archived.name, archived.archived) == ("Trip 🏔", True)
    assert (nameless.name, nameless.archived) == (None, True)
    assert await store.get(KEY) == nameless
    assert named.updated_at < archived.updated_at < nameless.updated_at


@pytest.mark.parametrize("name", ["x" * 501, "a\0b", "\ud83d"], ids=["long", "NUL", "half"])
async def test_a_name_that_cannot_be_kept_is_refused(store: ThreadStore, name: str) -> None:
    await store.begin(run_of())

    with pytest.raises(Misuse, match="name"):
        await store.update(KEY, name=name)


@in_one_test("id", ["", "x" * 501, "a\0b", "\ud83d", "a\nb", "\x7f", ".", ".."])
async def test_an_id_that_cannot_be_kept_is_refused(store: ThreadStore, id: str) -> None:
    key = ThreadKey("ann", id)
    with pytest.raises(Misuse):
        await store.begin(run_of(key))

    assert (await store.get(key), await store.runs(key)) == (None, [])
    assert (await store.update(key, name="x"), await store.delete(key)) == (None, False)


async def test_ids_of_five_hundred_characters_are_kept(store: ThreadStore) -> None:
    key = ThreadKey("ü" * 500, "🏔" * 500)
    await told(store, run_of(key, run_id="r" * 500))

    assert [run.run_id for run in await store.runs(key)] == ["r" * 500]


async def test_a_deleted_thread_is_gone_with_its_messages(store: ThreadStore) -> None:
    await told(store, run_of())

    assert (await store.delete(KEY), await store.delete(KEY)) == (True, False)
    assert (await store.get(KEY), await store.runs(KEY)) == (None, [])
    assert await store.begin(run_of()) == [user()]


async def test_a_request_of_a_deleted_thread_begins_nothing_for_a_while(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, again, other = (run_of(log_id=log_id) for log_id in ("1.same", "2.same", "3.other"))
    await told(store, asked)
    await store.delete(KEY)
    with pytest.raises(NotFound, match="was deleted"):
        await store.begin(again)
    assert await store.get(KEY) is None

    await told(store, other)
    with pytest.raises(NotFound):
        await store.begin(again)
    assert len(await store.runs(KEY)) == 1

    for module in ("transactions", "memory"):
        monkeypatch.setattr(f"copilot_runtime.threads.{module}.REMEMBERED_S", 0)
    await store.delete(KEY)
    assert await store.begin(again) == [user()]


async def test_what_is_written_to_a_deleted_thread_goes_nowhere(store: ThreadStore) -> None:
    deleted, other = run_of(), run_of(ThreadKey("ann", "other"), run_id="other")
    await store.begin(deleted)
    await store.begin(other)
    await store.delete(KEY)
    log, others = log_of(deleted), log_of(other)
    await store.write(
        [Segment(log_id="r", events=log[:2]), Segment(log_id="other", events=others[:2])]
    )
    await store.write([Segment(log_id="r", events=log[2:], whole=log)])

    assert await store.get(KEY) is None
    assert [run.events for run in await store.runs(other_key())] == [others[:2]]


def other_key() -> ThreadKey:
    return ThreadKey("ann", "other")


async def test_old_threads_expire_but_not_those_with_a_run(store: ThreadStore) -> None:
    for key in threads("old", "busy", "new"):
        await store.begin(run_of(key, run_id=key.id))
        if key.id != "busy":
            log: list[Event] = [RunStarted(run_id=key.id, thread_id=key.id), RunFinished()]
            await store.write([Segment(log_id=key.id, events=log, whole=log)])
    new = await store.get(ThreadKey("ann", "new"))
    assert new

    assert await store.expire(new.updated_at) == 1
    assert await listed(store) == ["new", "busy"]
    assert await store.expire(new.updated_at) == 0


async def test_expired_runs_are_gone(store: ThreadStore) -> None:
    await told(store, run_of())

    assert await store.expire(datetime.now(UTC) + timedelta(hours=1)) == 1
    assert await store.runs(KEY) == []


async def test_an_open_text_of_a_run_is_closed_when_it_ends(store: ThreadStore) -> None:
    run = run_of()
    await store.begin(run)
    log = [*log_of(run)[:1], TextMessageStart(message_id="m"), RunFinished()]
    await store.write([Segment(log_id="r", events=log, whole=log)])
    [kept] = await store.runs(KEY)

    assert TextMessageEnd(message_id="m") in kept.events


async def test_a_store_may_be_opened_and_closed_twice(store: ThreadStore) -> None:
    await told(store, run_of())
    await store.open()
    await store.aclose()
    await store.aclose()

    assert [run.ended for run in await store.runs(KEY)] == [True]
