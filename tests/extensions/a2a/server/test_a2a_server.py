"""Agents of a runtime for A2A clients: the client of `a2a-sdk` over each binding."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict

from copilot_runtime import CopilotRuntime, Events, RunInput, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.events import Activity, Interrupt, RunFinished
from copilot_runtime.api.messages import MediaPart, TextMessage
from copilot_runtime.base.errors import Refused
from copilot_runtime.extensions.a2a.client import A2aAgent
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    create_surface,
    update_components,
)
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.run import Log, Run
from tests.extensions.a2a.client.remote import asked, hear, hear_failure
from tests.extensions.a2a.client.remote import text_of as text_heard
from tests.extensions.a2a.server.clients import (
    asking,
    at_a2a,
    call_v03,
    said,
    state_of,
    text_of,
)
from tests.in_one_test import in_one_test
from tests.transports.served import Broken, Slow, at_work, by_token
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, serving

pytestmark = pytest.mark.anyio

WAYS: list[dict[str, Any]] = [
    {"binding": binding, "streaming": streaming}
    for binding in ("JSONRPC", "HTTP+JSON")
    for streaming in (True, False)
]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda it: f"{it['binding']}-{it['streaming']}")


class Listener:
    """Says how many messages it has got; keeps the last run."""

    def __init__(self) -> None:
        self.runs: list[RunInput] = []

    async def run(self, run: RunInput) -> Events:
        self.runs.append(run)
        for event in say(f"{len(run.messages)} messages", id=f"m-{len(self.runs)}"):
            yield event


@each_way
async def test_an_agent_answers_with_its_text_as_an_artifact(way: dict[str, Any]) -> None:
    async with at_a2a(way=way) as asker:
        task = await asker.ask("Hi")
    assert (state_of(task), text_of(task)) == ("completed", "You said Hi")
    assert [it.parts[0].text for it in task.history] == ["Hi"]


@in_one_test("late", [False, True], ids=["at-once", "after-its-end"])
async def test_a_text_is_streamed_as_it_is_written(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        monkeypatch.setattr(Conversations, "start_once", _start_and_wait)
    async with at_a2a() as asker:
        responses = [it async for it in asker.stream("Hi")]
    assert [it.WhichOneof("payload") for it in responses] == [
        "task",
        "artifact_update",
        "artifact_update",
        "artifact_update",
        "status_update",
    ]
    updates = [it.artifact_update for it in responses[1:4]]
    assert [(it.artifact.parts[0].text, it.append, it.last_chunk) for it in updates] == [
        ("You said ", False, False),
        ("Hi", True, False),
        ("", True, True),
    ]


_start_once = Conversations.start_once


async def _start_and_wait(
    conversations: Conversations, request: RunInput
) -> tuple[Run | None, Log]:
    """Start a run, and tell its reader when it has ended."""
    run, log = await _start_once(conversations, request)
    assert run is not None
    async for _ in run.follow():
        pass
    return run, log


async def test_a_context_is_a_thread_whose_conversation_the_agent_has() -> None:
    listener = Listener()
    async with at_a2a("listener", agents={"listener": listener}) as asker:
        first = await asker.ask("One")
        second = await asker.ask("Two", context_id=first.context_id)
        other = await asker.ask("Three")
    assert [text_of(it) for it in (first, second, other)] == [
        "1 messages",
        "3 messages",
        "1 messages",
    ]
    assert first.context_id == second.context_id != other.context_id
    assert [run.thread_id for run in listener.runs[:2]] == [first.context_id] * 2


async def test_actions_of_the_server_run_within_the_task() -> None:
    async with at_a2a("adder") as asker:
        assert text_of(await asker.ask("2 and 1?")) == "It is 3."


async def test_the_plain_chat_is_the_default_agent() -> None:
    runtime = CopilotRuntime(
        ScriptedAdapter(say("Hello")), settings=Settings(threads="memory", serve_a2a=True)
    )
    async with (
        serving(runtime.app(path=PATH)) as port,
        asking(Browser(port), "") as asker,
        asking(Browser(port), "default"),
    ):
        assert text_of(await asker.ask()) == "Hello"


@each_way
async def test_a_question_makes_the_task_wait_for_the_next_message(way: dict[str, Any]) -> None:
    async with at_a2a("asker", way=way) as asker:
        waiting = await asker.ask("Hi")
        answered = await asker.ask("Ann", task_id=waiting.id, context_id=waiting.context_id)
    assert (state_of(waiting), waiting.status.message.parts[0].text) == (
        "input_required",
        "Your name?",
    )
    assert (state_of(answered), text_of(answered)) == ("completed", "Hello Ann")
    assert answered.id == waiting.id


class Approver:
    """Asks for an approval."""

    async def run(self, run: RunInput) -> Events:
        if run.resume:
            for event in say(f"{run.resume[0].payload}", id="done"):
                yield event
            return
        properties = {"approved": {"type": "boolean"}}
        schema = {"type": "object", "properties": properties, "required": ["approved"]}
        yield Interrupt(interrupt_id="i-1", message="Pay 5 euros?", response_schema=schema)


@in_one_test(
    ("part", "payload"),
    [
        (Part(text="Yes."), "{'approved': True}"),
        (Part(text="no"), "{'approved': False}"),
        ({"approved": False}, "{'approved': False}"),
        ({"interruptId": "i-1", "payload": {"approved": True}}, "{'approved': True}"),
    ],
)
async def test_an_approval_is_a_text_or_a_data_part(part: Any, payload: str) -> None:
    if isinstance(part, dict):
        part = ParseDict({"data": part}, Part())
    async with at_a2a("approver", agents={"approver": Approver()}) as asker:
        waiting = await asker.ask("Buy it")
        answer = Message(message_id="m", role=Role.ROLE_USER, parts=[part], task_id=waiting.id)
        assert text_of(await asker.ask(answer)) == payload
    question = MessageToDict(waiting.status.message.parts[1].data)
    assert (question["interruptId"], "approved" in str(question["responseSchema"])) == ("i-1", True)


async def test_an_answer_that_does_not_fit_leaves_the_task_waiting() -> None:
    async with at_a2a("approver", agents={"approver": Approver()}) as asker:
        waiting = await asker.ask("Buy it")
        with pytest.raises(InvalidParamsError):
            await asker.ask("Perhaps", task_id=waiting.id)
        assert text_of(await asker.ask("yes", task_id=waiting.id)) == "{'approved': True}"


async def test_a_task_that_has_ended_takes_no_message() -> None:
    async with at_a2a() as asker:
        task = await asker.ask("Hi")
        with pytest.raises(UnsupportedOperationError, match="does not wait"):
            await asker.ask("Again", task_id=task.id)


async def test_an_agent_that_fails_fails_its_task() -> None:
    async with at_a2a("broken") as asker:
        task = await asker.ask("Hi")
    assert (state_of(task), text_of(task)) == ("failed", "Well")
    assert task.status.message.parts[0].text == "The model is down."


async def test_an_unexpected_error_fails_the_task_without_its_details() -> None:
    async def explode(run: RunInput) -> str:
        raise ValueError("secret")

    async with at_a2a("explode", agents={"explode": explode}) as asker:
        task = await asker.ask("Hi")
    assert state_of(task) == "failed"
    assert "secret" not in str(task)


async def test_what_a_guardrail_refuses_is_a_rejected_task() -> None:
    async def refuse(run: RunInput) -> str:
        raise Refused("Not about that.")

    async with at_a2a("refuse", agents={"refuse": refuse}) as asker:
        task = await asker.ask("Hi")
    assert (state_of(task), task.status.message.parts[0].text) == ("rejected", "Not about that.")


@in_one_test("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_goes_on_without_its_client_who_may_come_back(binding: str) -> None:
    slow, task_id = Slow(), ""
    async with at_a2a("slow", agents={"slow": slow}, way={"binding": binding}) as asker:
        async with aclosing(asker.stream()) as responses:
            async for response in responses:
                task_id = response.task.id
                break
        await slow.gate.wait_for_event()
        now = await asker.client.get_task(GetTaskRequest(id=task_id))
        states, texts = [state_of(now)], list[str]()
        async for response in asker.client.subscribe(SubscribeToTaskRequest(id=task_id)):
            slow.gate.release(1)
            texts += [text_of(response.task)] if response.HasField("task") else []
            texts += [it.text for it in response.artifact_update.artifact.parts]
        then = await asker.client.get_task(GetTaskRequest(id=task_id))
    assert (states, state_of(then), text_of(then)) == (["working"], "completed", "tick tock")
    assert "".join(texts) == "tick tock"


async def test_a_client_need_not_wait_for_the_end() -> None:
    slow = Slow()
    async with at_a2a("slow", agents={"slow": slow}, way={"streaming": False}) as asker:
        task = await asker.ask("Hi", at_once=True)
        assert state_of(task) == "working"
        slow.gate.release(2)
        await slow.left.wait()


@in_one_test("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_is_canceled_with_what_it_has(binding: str) -> None:
    slow = Slow()
    async with at_a2a(
        "slow", agents={"slow": slow}, way={"streaming": False, "binding": binding}
    ) as asker:
        task = await asker.ask("Hi", at_once=True)
        await slow.gate.wait_for_event()
        canceled = await asker.client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotCancelableError):
            await asker.client.cancel_task(CancelTaskRequest(id=task.id))
    assert (state_of(canceled), text_of(canceled), slow.left.is_set()) == (
        "canceled",
        "tick ",
        True,
    )


async def test_a_second_message_waits_for_no_task_that_goes_on() -> None:
    slow = Slow()
    async with at_a2a("slow", agents={"slow": slow}, way={"streaming": False}) as asker:
        task = await asker.ask("Hi", at_once=True)
        with pytest.raises(UnsupportedOperationError, match="still being answered"):
            await asker.ask("Again", context_id=task.context_id)
        slow.gate.release(2)
        await slow.left.wait()


async def test_another_user_has_no_such_task_and_no_such_context() -> None:
    listener = Listener()
    settings = {"serve_a2a": True}
    options: dict[str, Any] = {"agents": {"listener": listener}, "authenticate": by_token}
    async with at_work(settings=settings, **options) as browser:
        ann = {"authorization": "Bearer ann"}
        bob = {"authorization": "Bearer bob"}
        async with (
            asking(browser, "listener", headers=ann) as of_ann,
            asking(browser, "listener", headers=bob) as of_bob,
        ):
            task = await of_ann.ask("Mine")
            for request in (
                of_bob.client.get_task(GetTaskRequest(id=task.id)),
                of_bob.client.cancel_task(CancelTaskRequest(id=task.id)),
                of_bob.ask("Go on", task_id=task.id),
            ):
                with pytest.raises(TaskNotFoundError):
                    await request
            with pytest.raises(TaskNotFoundError):
                async for _ in of_bob.client.subscribe(SubscribeToTaskRequest(id=task.id)):
                    pass
            listing = ListTasksRequest(context_id=task.context_id)
            assert (await of_bob.client.list_tasks(listing)).total_size == 0
            assert (await of_ann.client.list_tasks(listing)).tasks[0].id == task.id
            await of_bob.ask("Hi", context_id=task.context_id)
    assert [len(run.messages) for run in listener.runs] == [1, 1]


async def test_a_task_belongs_to_its_agent_alone() -> None:
    async with (
        at_work(settings={"serve_a2a": True}) as browser,
        asking(browser, "echo") as echo,
        asking(browser, "adder") as adder,
    ):
        task = await echo.ask("Hi")
        with pytest.raises(TaskNotFoundError):
            await adder.client.get_task(GetTaskRequest(id=task.id))


async def test_tasks_of_a_context_are_listed_the_latest_first() -> None:
    async with at_a2a() as asker:
        first = await asker.ask("One")
        for word in ("Two", "Three"):
            await asker.ask(word, context_id=first.context_id)
        request = ListTasksRequest(
            context_id=first.context_id, page_size=2, history_length=5, include_artifacts=True
        )
        page = await asker.client.list_tasks(request)
        request.page_token = page.next_page_token
        rest = await asker.client.list_tasks(request)
        request.page_token = ""
        request.status = TaskState.TASK_STATE_FAILED
        none = await asker.client.list_tasks(request)
    assert [text_of(it) for it in [*page.tasks, *rest.tasks]] == [
        "You said Three",
        "You said Two",
        "You said One",
    ]
    assert (page.total_size, rest.next_page_token, none.total_size) == (3, "", 0)


async def test_tasks_are_there_after_a_restart(tmp_path: Any) -> None:
    settings = {"serve_a2a": True, "threads": f"sqlite:{tmp_path}/threads.db"}
    async with at_a2a("asker", settings=settings) as asker:
        waiting = await asker.ask("Hi")
    async with at_a2a("asker", settings=settings) as asker:
        found = await asker.client.get_task(GetTaskRequest(id=waiting.id))
        answered = await asker.ask("Ann", task_id=waiting.id)
    assert (state_of(found), text_of(answered)) == ("input_required", "Hello Ann")


async def test_files_and_data_reach_the_agent_as_parts() -> None:
    listener = Listener()
    message = said("Look")
    message.parts.extend(
        [
            Part(raw=b"PNG", media_type="image/png", filename="a.png"),
            Part(url="https://example.com/a.pdf", media_type="application/pdf"),
            ParseDict({"data": {"n": 1}}, Part()),
        ]
    )
    async with at_a2a("listener", agents={"listener": listener}) as asker:
        await asker.ask(message)
    last = listener.runs[0].messages[-1]
    assert isinstance(last, TextMessage)
    assert last.content == 'Look\n\n{"n":1.0}'
    assert [(it.kind, it.source, it.value) for it in last.parts if isinstance(it, MediaPart)] == [
        ("image", "data", "UE5H"),
        ("document", "url", "https://example.com/a.pdf"),
    ]


class Drawer:
    """Draws what an agent can draw."""

    async def run(self, run: RunInput) -> Events:
        operations = [
            create_surface("s"),
            update_components("s", [{"id": "root", "component": "Text", "text": "Hi"}]),
        ]
        yield Activity(
            message_id="s", activity_type="a2ui-surface", content={"a2ui_operations": operations}
        )
        yield Activity(
            message_id="i", activity_type="image", content={"mimeType": "image/png", "data": "UE5H"}
        )
        yield Activity(message_id="c", activity_type="card", content={"title": "Hi"})
        yield RunFinished(result={"rows": 3})


async def test_surfaces_images_and_results_are_artifacts() -> None:
    async with at_a2a("drawer", agents={"drawer": Drawer()}) as asker:
        task = await asker.ask("Draw")
    parts = {it.artifact_id: it.parts for it in task.artifacts}
    assert MessageToDict(parts["s"][0].data) == create_surface("s")
    assert {it.media_type for it in parts["s"]} == {"application/json+a2ui"}
    assert parts["s"][0].metadata["mimeType"] == "application/json+a2ui"
    assert (parts["i"][0].raw, parts["i"][0].media_type) == (b"PNG", "image/png")
    assert MessageToDict(parts["c"][0].data) == {"activityType": "card", "content": {"title": "Hi"}}
    assert MessageToDict(parts["result"][0].data) == {"rows": 3}


async def test_a_click_in_a_surface_is_a_run_with_the_click() -> None:
    listener = Listener()
    click = {"version": "v0.9", "action": {"name": "buy", "surfaceId": "s"}}
    message = Message(message_id="m", role=Role.ROLE_USER)
    message.parts.append(ParseDict({"data": click, "mediaType": "application/json+a2ui"}, Part()))
    headers = {"a2a-extensions": "https://a2ui.org/a2a-extension/a2ui/v0.9"}
    async with at_a2a("listener", agents={"listener": listener}, way={"headers": headers}) as asker:
        await asker.ask(message)
    assert listener.runs[0].properties["a2uiAction"] == {
        "userAction": {"name": "buy", "surfaceId": "s"}
    }
    assert [it.type for it in listener.runs[0].messages] == ["text", "action_execution", "result"]


@in_one_test("method", ["message/send", "message/stream"])
async def test_clients_of_0_3_are_answered_in_their_words(method: str) -> None:
    message = {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "Hi"}]}
    async with at_a2a() as asker:
        answer = await call_v03(asker, method, {"message": message})
        first = answer[0]["result"] if isinstance(answer, list) else answer["result"]
        task = await call_v03(asker, "tasks/get", {"id": first["id"]})
    assert first["kind"] == "task"
    assert task["result"]["status"]["state"] == "completed"
    assert task["result"]["artifacts"][0]["parts"] == [{"kind": "text", "text": "You said Hi"}]


async def test_our_agent_asks_ours() -> None:
    """A runtime offers its agent, another one has it as any agent."""
    slow = Slow()
    agents = {"slow": slow, "asker": Approver(), "broken": Broken()}
    async with at_work(settings={"serve_a2a": True}, agents=agents) as browser:
        base = f"http://127.0.0.1:{browser.where}{browser.base}/a2a"
        agent = A2aAgent(f"{base}/slow")
        slow.gate.release(2)
        texts = text_heard(await hear(agent))
        approver = A2aAgent(f"{base}/asker")
        question = text_heard(await hear(approver, asked("Buy")))
        answer = text_heard(await hear(approver, asked("yes")))
        _, error = await hear_failure(A2aAgent(f"{base}/broken"))
    assert (texts, question, answer) == ("tick tock", "Pay 5 euros?", "{'approved': True}")
    assert error.message == "The agent 'remote' failed: The model is down."


async def test_a_stop_here_ends_the_run_there() -> None:
    slow = Slow()
    async with at_work(settings={"serve_a2a": True}, agents={"slow": slow}) as browser:
        agent = A2aAgent(f"http://127.0.0.1:{browser.where}{browser.base}/a2a/slow")
        async with aclosing(agent.run(asked())) as events:
            async for event in events:
                if event.type == "text_message_content":
                    break
        async with asyncio.timeout(30):
            await slow.left.wait()
        await agent.aclose()
