"""A2A agents on servers of the package `a2a-sdk`: what they get, and what comes of it."""

import asyncio
import base64
from contextlib import aclosing
from typing import Any

import pytest
from a2a.helpers import new_text_message
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Role
from google.protobuf.json_format import MessageToDict

from copilot_runtime.api.events import (
    Activity,
    StepFinished,
    StepStarted,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import ImageMessage, MediaPart, TextMessage, TextPart
from copilot_runtime.base.errors import AuthenticationFailed, Cancelled
from copilot_runtime.extensions.a2a.client import A2aAgent
from tests.extensions.a2a.client.remote import (
    Remote,
    asked,
    data_part,
    hear,
    hear_failure,
    serve_remote,
    text_of,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

WAYS: list[dict[str, Any]] = [
    {"version": version, "binding": binding, "streaming": streaming}
    for version in ("1.0", "0.3")
    for binding in ("JSONRPC", "HTTP+JSON")
    for streaming in (True, False)
]


@in_one_test("way", WAYS, ids=lambda it: " ".join(map(str, it.values())))
async def test_an_agent_answers_over_each_binding(way: dict[str, Any]) -> None:
    async with serve_remote(**way) as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == "Hello there"


async def test_an_artifact_in_pieces_is_one_text_that_grows_while_the_agent_works() -> None:
    async with serve_remote() as remote:
        events = await hear(A2aAgent(remote.url))
    id = next(it.message_id for it in events if isinstance(it, TextMessageStart))
    assert events == [
        StepStarted(name="working"),
        TextMessageStart(message_id=id),
        TextMessageContent(message_id=id, content="Hel"),
        TextMessageContent(message_id=id, content="lo "),
        TextMessageContent(message_id=id, content="there"),
        TextMessageEnd(message_id=id),
        StepFinished(name="working"),
    ]


@in_one_test("streaming", [True, False])
async def test_an_agent_may_answer_with_a_message_alone(streaming: bool) -> None:
    async with serve_remote(streaming=streaming, answers_with_message="Yes.") as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == "Yes."


async def test_the_agent_gets_the_last_user_message_in_the_context_of_the_thread() -> None:
    messages = [
        TextMessage(id="1", role="user", content="Before"),
        TextMessage(id="2", role="assistant", content="Yes?"),
        TextMessage(id="3", role="user", content="One"),
        TextMessage(id="4", role="user", content="Two"),
    ]
    async with serve_remote() as remote:
        await hear(A2aAgent(remote.url), asked(messages=messages))
    [message] = remote.asked
    assert (message.context_id, message.role) == ("thread-1", Role.ROLE_USER)
    assert [part.text for part in message.parts] == ["One", "Two"]


async def test_users_have_contexts_of_their_own_in_threads_of_the_same_name() -> None:
    async with serve_remote() as remote:
        agent = A2aAgent(remote.url)
        for user in ("ann", "bob", "ann"):
            await hear(agent, asked(user=user))
    ann, bob, again = [message.context_id for message in remote.asked]
    assert ann == again != bob
    assert "thread-1" not in (ann, bob)


async def test_files_of_a_message_reach_the_agent() -> None:
    content = base64.b64encode(b"%PDF").decode()
    parts = [
        TextPart(text="Read these"),
        MediaPart(
            *(), kind="document", source="data", value=content, filename="a.pdf", mime_type="a/pdf"
        ),
        MediaPart(kind="image", source="url", value="https://example.com/cat.png"),
    ]
    message = TextMessage(id="1", role="user", content="Read these", parts=parts)
    image = ImageMessage(id="2", role="user", format="png", bytes=base64.b64encode(b"PNG").decode())
    async with serve_remote() as remote:
        await hear(A2aAgent(remote.url), asked(messages=[message, image]))
    text, file, link, picture = remote.asked[0].parts
    assert text.text == "Read these"
    assert (file.raw, file.filename, file.media_type) == (b"%PDF", "a.pdf", "a/pdf")
    assert (link.url, link.media_type) == ("https://example.com/cat.png", "image/*")
    assert (picture.raw, picture.media_type) == (b"PNG", "image/png")


async def test_no_request_is_sent_without_a_user_message() -> None:
    async with serve_remote() as remote:
        assert await hear(A2aAgent(remote.url), asked(messages=[])) == []
    assert remote.asked == []


async def test_files_and_data_of_an_artifact_are_activities() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        parts = [
            data_part({"rows": [1, 2]}),
            Part(raw=b"a,b", filename="rows.csv", media_type="text/csv"),
            Part(raw=b"PNG", filename="a.png", media_type="image/png"),
            Part(url="https://example.com/r.pdf", filename="r.pdf"),
            Part(url="javascript:alert(1)", filename="evil"),
        ]
        await task.add_artifact(parts, "a", name="table")
        await task.complete()

    async with serve_remote(script) as remote:
        events = await hear(A2aAgent(remote.url))
    activities = [it for it in events if isinstance(it, Activity)]
    assert [(it.activity_type, it.content) for it in activities] == [
        ("a2a-data", {"data": {"rows": [1, 2]}, "name": "table"}),
        (
            "a2a-file",
            {"name": "rows.csv", "mediaType": "text/csv", "size": 3, "data": "YSxi"},
        ),
        ("image", {"mimeType": "image/png", "data": "UE5H"}),
        ("a2a-file", {"name": "r.pdf", "url": "https://example.com/r.pdf"}),
        ("a2a-file", {"name": "evil", "url": "javascript:alert(1)"}),
    ]
    assert (
        text_of(events)
        == "rows.csv (3 bytes)a.png (3 bytes)[r.pdf](<https://example.com/r.pdf>)evil"
    )


async def test_data_are_a_text_as_well_if_the_agent_says_nothing_else() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.add_artifact([data_part({"answer": 42})], "a")
        await task.complete()

    async with serve_remote(script) as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == '```json\n{"answer":42}\n```'


@in_one_test("streaming", [True, False])
async def test_a_message_is_not_repeated_as_an_artifact(streaming: bool) -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.start_work(task.new_agent_message([Part(text="It rains.")]))
        await task.add_artifact([Part(text="It rains.")], "a", last_chunk=True)
        await task.complete(task.new_agent_message([Part(text="It rains.")]))

    async with serve_remote(script, streaming=streaming) as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == "It rains."


async def test_an_artifact_that_is_sent_as_a_whole_again_and_again_grows() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        for text in ("One", "One, two", "One, two, three"):
            await task.add_artifact([Part(text=text)], "a")
        await task.complete()

    async with serve_remote(script) as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == "One, two, three"


async def test_new_content_of_a_repeated_artifact_is_displayed_once() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        for count in (1, 2, 2):
            await task.add_artifact([data_part({"n": n}) for n in range(count)], "a")
        await task.complete()

    async with serve_remote(script) as remote:
        events = await hear(A2aAgent(remote.url))
    activities = [it.content for it in events if isinstance(it, Activity)]
    assert activities == [{"data": {"n": 0}}, {"data": {"n": 1}}]


async def ask_for_a_city(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    if context.current_task is not None:
        await task.add_artifact([Part(text=f"Sunny in {context.get_user_input()}.")], "a")
        await task.complete()
    else:
        await task.requires_input(task.new_agent_message([Part(text="In which city?")]))


@pytest.mark.parametrize("way", WAYS, ids=lambda it: " ".join(map(str, it.values())))
async def test_a_task_that_waits_for_input_goes_on_with_the_next_message(
    way: dict[str, Any],
) -> None:
    async with serve_remote(ask_for_a_city, **way) as remote:
        agent = A2aAgent(remote.url)
        question = text_of(await hear(agent, asked("Weather?")))
        answer = text_of(await hear(agent, asked("Bonn")))
        again = text_of(await hear(agent, asked("And then?")))
    assert (question, answer, again) == ("In which city?", "Sunny in Bonn.", "In which city?")
    assert len({message.context_id for message in remote.asked}) == 1


@in_one_test("binding", ["JSONRPC", "HTTP+JSON"])
async def test_a_task_still_waits_after_a_restart_of_this_server(binding: str) -> None:
    messages = [
        TextMessage(id="1", role="user", content="Weather?"),
        TextMessage(id="2", role="assistant", content="In which city?"),
        TextMessage(id="3", role="user", content="Bonn"),
    ]
    async with serve_remote(ask_for_a_city, binding=binding) as remote:
        await hear(A2aAgent(remote.url), asked("Weather?"))
        answer = text_of(await hear(A2aAgent(remote.url), asked(messages=messages)))
    assert answer == "Sunny in Bonn."


async def test_a_task_that_the_agent_does_not_know_is_restarted() -> None:
    async with serve_remote(ask_for_a_city) as remote:
        agent = A2aAgent(remote.url)
        await hear(agent, asked("Weather?"))
        gone = agent._checkpoints.save(asked("Weather?"), b'{"task": "gone"}')  # pyright: ignore[reportPrivateUsage]  # as after a restart over there
        await gone
        assert text_of(await hear(agent, asked("Weather?"))) == "In which city?"


@in_one_test(
    ("end", "message", "kind"),
    [
        ("failed", "The agent 'remote' failed: No luck.", "AgentFailed"),
        ("reject", "The agent 'remote' refused the task: No luck.", "AgentFailed"),
        ("cancel", "The task of the agent 'remote' was canceled: No luck.", "Cancelled"),
        (
            "requires_auth",
            "The agent 'remote' needs a sign-in before it goes on: No luck.",
            "AuthenticationFailed",
        ),
    ],
)
async def test_a_task_that_does_not_end_well_ends_the_run_with_its_reason(
    end: str, message: str, kind: str
) -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.add_artifact([Part(text="So far.")], "a")
        await getattr(task, end)(task.new_agent_message([Part(text="No luck.")]))

    async with serve_remote(script) as remote:
        events, error = await hear_failure(A2aAgent(remote.url))
    assert (text_of(events), error.message, error.kind) == ("So far.", message, kind)
    assert isinstance(events[-1], TextMessageEnd)
    assert isinstance(error, AuthenticationFailed | Cancelled) == (kind != "AgentFailed")


async def wait_at_the_gate(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
    await task.start_work(task.new_agent_message([Part(text="Well")]))
    remote.reached.set()
    await remote.gate.wait()
    await task.complete()


async def test_a_run_that_is_stopped_cancels_the_task_of_the_agent() -> None:
    heard = asyncio.Event()

    async def listen(agent: A2aAgent) -> None:
        async with aclosing(agent.run(asked())) as events:
            async for event in events:
                if isinstance(event, TextMessageContent):
                    heard.set()

    async with serve_remote(wait_at_the_gate) as remote:
        agent = A2aAgent(remote.url)
        task = asyncio.create_task(listen(agent))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await remote.was_canceled.wait()
        await agent.aclose()


async def test_a_run_that_is_left_cancels_the_task_of_the_agent() -> None:
    async with serve_remote(wait_at_the_gate) as remote:
        agent = A2aAgent(remote.url)
        async with aclosing(agent.run(asked())) as events:
            async for event in events:
                if isinstance(event, TextMessageContent):
                    break
        await remote.was_canceled.wait()
        await agent.aclose()


async def test_headers_of_the_operator_replace_those_of_the_caller() -> None:
    async with serve_remote() as remote:
        agent = A2aAgent(remote.url, headers={"Authorization": "Bearer ours"})
        headers = {"authorization": "Bearer theirs", "x-tenant": "acme", "cookie": "no"}
        await hear(agent, asked(headers=headers))
    card, question = remote.headers
    assert (card["authorization"], "x-tenant" in card) == ("Bearer ours", False)
    assert (question["authorization"], question["x-tenant"]) == ("Bearer ours", "acme")
    assert "cookie" not in question


async def test_the_card_is_fetched_once_for_many_runs() -> None:
    async with serve_remote() as remote:
        agent = A2aAgent(remote.url)
        await hear(agent)
        await hear(agent)
    assert remote.requests == ["/.well-known/agent-card.json", "/rpc", "/rpc"]


async def test_the_address_may_be_that_of_the_card() -> None:
    async with serve_remote() as remote:
        agent = A2aAgent(f"{remote.url}/.well-known/agent-card.json")
        assert text_of(await hear(agent)) == "Hello there"


async def test_the_last_words_of_a_task_without_artifacts_are_the_answer() -> None:
    async def script(remote: Remote, task: TaskUpdater, context: RequestContext) -> None:
        await task.start_work(task.new_agent_message([Part(text="All is well.")]))
        await task.complete()

    async with serve_remote(script, streaming=False) as remote:
        assert text_of(await hear(A2aAgent(remote.url))) == "All is well."


async def test_the_answer_of_a_program_reaches_the_agent_as_it_is() -> None:
    """What the SDK makes of a text is what we make of it."""
    async with serve_remote() as remote:
        await hear(A2aAgent(remote.url), asked("Grüße \U0001f600"))
    ours = MessageToDict(remote.asked[0])["parts"]
    theirs = MessageToDict(new_text_message("Grüße \U0001f600", role=Role.ROLE_USER))["parts"]
    assert ours == theirs
