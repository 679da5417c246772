"""A message that an A2A client sends again: the agent runs once, and the same task comes back."""

import asyncio
from typing import Any

import pytest
from a2a.types import Message, Part, Role, Task
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf.json_format import ParseDict

from copilot_runtime import Events, RunInput
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import Interrupt
from tests.extensions.a2a.server.clients import asking, at_a2a, call_v03, said, state_of, text_of
from tests.in_one_test import in_one_test
from tests.transports.served import Slow, at_work, by_token

pytestmark = pytest.mark.anyio

ID = "9229e770-767c-417b-a0b0-f0741243c589"
each_way = pytest.mark.parametrize(
    "way",
    [
        {"binding": binding, "streaming": streaming}
        for binding in ("JSONRPC", "HTTP+JSON")
        for streaming in (True, False)
    ],
    ids=lambda it: f"{it['binding']}-{it['streaming']}",
)


class Counter:
    """Says how often it has been asked."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, run: RunInput) -> Events:
        self.count += 1
        for event in say(f"Done {self.count}", id=f"m-{self.count}"):
            yield event


class Asking:
    """Asks as long as it is told to, under the same id; counts what it is told."""

    def __init__(self) -> None:
        self.answers = list[str | None]()

    async def run(self, run: RunInput) -> Events:
        self.answers += [it.response for it in run.resume]
        if not run.resume or run.resume[0].response == "more":
            yield Interrupt(interrupt_id="i", value="Go on?")
            return
        for event in say("Done", id="done"):
            yield event


def write(text: str = "Book it", *, id: str = ID, **fields: str) -> Message:
    message = said(text, **fields)
    message.message_id = id
    return message


def content_of(task: Task) -> tuple[str, str, str, str]:
    return task.id, task.context_id, state_of(task), text_of(task)


@each_way
@in_one_test("context", ["", "c"])
async def test_a_message_that_comes_again_gets_the_same_task(
    way: dict[str, Any], context: str
) -> None:
    counter = Counter()
    message = write(context_id=context)
    async with at_a2a("counter", agents={"counter": counter}, way=way) as asker:
        tasks = [await asker.ask(message) for _ in range(3)]
    assert [content_of(it) for it in tasks] == [content_of(tasks[0])] * 3
    assert (state_of(tasks[0]), text_of(tasks[0]), counter.count) == ("completed", "Done 1", 1)


@each_way
@in_one_test("context", ["", "c"])
async def test_a_message_that_comes_four_times_at_once_is_worked_on_once(
    way: dict[str, Any], context: str
) -> None:
    counter = Counter()
    message = write(context_id=context)
    async with at_a2a("counter", agents={"counter": counter}, way=way) as asker:
        tasks = await asyncio.gather(*(asker.ask(message) for _ in range(4)))
    assert {content_of(it) for it in tasks} == {content_of(tasks[0])}
    assert (text_of(tasks[0]), counter.count) == ("Done 1", 1)


async def test_a_message_that_comes_again_follows_its_task_while_that_goes_on() -> None:
    slow, message = Slow(), write(context_id="c")
    async with at_a2a("slow", agents={"slow": slow}) as asker:
        first = asyncio.create_task(asker.ask(message))
        await slow.gate.wait_for_event()
        updates = asker.stream(message)
        begun = await anext(updates)
        slow.gate.release(2)
        texts = [
            it.artifact_update.artifact.parts[0].text
            async for it in updates
            if it.HasField("artifact_update")
        ]
        task = await first
    assert (begun.task.id, text_of(begun.task) + "".join(texts)) == (task.id, "tick tock")


async def test_a_client_that_does_not_wait_gets_the_task_as_it_is_now() -> None:
    counter, message = Counter(), write(context_id="c")
    way = {"streaming": False}
    async with at_a2a("counter", agents={"counter": counter}, way=way) as asker:
        first = await asker.ask(message)
        again = await asker.ask(message, at_once=True)
    assert content_of(again) == content_of(first)


async def test_clients_of_0_3_may_send_a_message_again_as_well() -> None:
    counter = Counter()
    parts = [{"kind": "text", "text": "Hi"}]
    message = {"messageId": "1", "contextId": "c", "role": "user", "parts": parts}
    async with at_a2a("counter", agents={"counter": counter}) as asker:
        first = await call_v03(asker, "message/send", {"message": message})
        again = await call_v03(asker, "message/stream", {"message": message})
    assert {it["result"].get("taskId", first["result"]["id"]) for it in again} == {
        first["result"]["id"]
    }
    assert (again[-1]["result"]["status"]["state"], counter.count) == ("completed", 1)


async def test_another_message_with_the_same_id_is_another_task() -> None:
    counter = Counter()
    messages = [
        write("One", context_id="c"),
        write("Two", context_id="c"),
        write("One", context_id="d"),
        write("Two"),
    ]
    async with at_a2a("counter", agents={"counter": counter}) as asker:
        tasks = [await asker.ask(it) for it in messages]
    assert [text_of(it) for it in tasks] == ["Done 1", "Done 2", "Done 3", "Done 4"]
    assert len({it.id for it in tasks}) == 4


async def test_without_a_context_a_short_id_tells_no_messages_apart() -> None:
    counter = Counter()
    async with at_a2a("counter", agents={"counter": counter}) as asker:
        tasks = [await asker.ask(write(id="1")) for _ in range(2)]
    assert [text_of(it) for it in tasks] == ["Done 1", "Done 2"]
    assert tasks[0].context_id != tasks[1].context_id


@in_one_test("context", ["", "c"])
async def test_the_same_message_of_another_user_is_another_task(context: str) -> None:
    counter, tasks = Counter(), list[Task]()
    options: dict[str, Any] = {"agents": {"counter": counter}, "authenticate": by_token}
    async with at_work(settings={"serve_a2a": True}, **options) as browser:
        for user in ("ann", "bob"):
            headers = {"authorization": f"Bearer {user}"}
            async with asking(browser, "counter", headers=headers) as asker:
                tasks.append(await asker.ask(write(context_id=context)))
    assert [text_of(it) for it in tasks] == ["Done 1", "Done 2"]


async def test_the_same_message_to_another_agent_is_another_task() -> None:
    one, other = Counter(), Counter()
    async with (
        at_work(settings={"serve_a2a": True}, agents={"one": one, "other": other}) as browser,
        asking(browser, "one") as of_one,
        asking(browser, "other") as of_other,
    ):
        tasks = [await it.ask(write(context_id="c")) for it in (of_one, of_other)]
    assert (one.count, other.count, tasks[0].id != tasks[1].id) == (1, 1, True)


@each_way
async def test_a_repeated_answer_is_processed_once(way: dict[str, Any]) -> None:
    agent = Asking()
    async with at_a2a("agent", agents={"agent": agent}, way=way) as asker:
        question = write(context_id="c")
        waiting = await asker.ask(question)
        still = await asker.ask(question)
        more = write("more", id="a", task_id=waiting.id)
        answers = [await asker.ask(more) for _ in range(2)]
        done = write("done", id="b", task_id=waiting.id)
        ends = await asyncio.gather(*(asker.ask(done) for _ in range(3)))
        ends += [await asker.ask(it) for it in (done, more, question)]
    assert agent.answers == ["more", "done"]
    assert {content_of(it) for it in (waiting, still, *answers)} == {content_of(waiting)}
    assert state_of(waiting) == "input_required"
    assert {content_of(it) for it in ends} == {(waiting.id, "c", "completed", "Done")}


async def test_a_click_that_comes_again_is_one() -> None:
    counter = Counter()
    click = {"version": "v0.9", "action": {"name": "buy", "surfaceId": "s"}}
    message = Message(message_id="m", role=Role.ROLE_USER, context_id="c")
    message.parts.append(ParseDict({"data": click, "mediaType": "application/json+a2ui"}, Part()))
    headers = {"a2a-extensions": "https://a2ui.org/a2a-extension/a2ui/v0.9"}
    async with at_a2a("counter", agents={"counter": counter}, way={"headers": headers}) as asker:
        tasks = [await asker.ask(message) for _ in range(2)]
    assert (text_of(tasks[1]), tasks[0].id, counter.count) == ("Done 1", tasks[1].id, 1)


async def test_a_message_of_a_context_that_was_deleted_is_not_worked_on_again() -> None:
    counter, message = Counter(), write(context_id="c")
    async with (
        at_work(settings={"serve_a2a": True}, agents={"counter": counter}) as browser,
        asking(browser, "counter") as asker,
    ):
        await asker.ask(message)
        await browser.ask("DELETE", "/threads/c")
        with pytest.raises(TaskNotFoundError):
            await asker.ask(message)
    assert counter.count == 1


async def test_an_answer_without_an_id_that_comes_again_is_not_for_the_next_question() -> None:
    agent = Asking()
    async with at_a2a("it", agents={"it": agent}) as asker:
        task = await asker.ask(write())
        more = Message(role=Role.ROLE_USER, parts=[Part(text="more")], task_id=task.id)
        waiting = await asker.ask(more)
        with pytest.raises(InvalidParamsError, match="Give this one a messageId"):
            await asker.ask(more)

    assert (state_of(waiting), agent.answers) == ("input_required", ["more"])
