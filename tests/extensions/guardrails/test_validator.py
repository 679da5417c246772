"""The validator behind HTTP: a real server on loopback that says what a test wants."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from copilot_runtime import CopilotRuntime, ScriptedAdapter, Settings
from copilot_runtime.adapters.scripted import Gate, call, say
from copilot_runtime.api import Action, ActionContext, Stage
from copilot_runtime.api.events import ActionExecutionStart, TextMessageContent
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.errors import MissingPublicApiKey, NetworkError
from copilot_runtime.extensions.guardrails.guardrails import HttpGuardrail
from tests.in_one_test import in_one_test
from tests.security.conftest import KEY, RULES, asking, log_of, refusal, text_of

pytestmark = pytest.mark.anyio


@dataclass
class Cloud:
    """What was asked, and what is answered."""

    answer: Callable[[], Awaitable[web.Response]]
    url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])

    async def judge(self, request: web.Request) -> web.Response:
        key = request.headers.get("x-copilotcloud-public-api-key", "")
        self.asked.append((key, await request.json()))
        return await self.answer()


@asynccontextmanager
async def cloud(answer: Any, status: int = 200) -> AsyncGenerator[Cloud, None]:
    async def fixed() -> web.Response:
        if isinstance(answer, bytes):
            return web.Response(body=answer, status=status)
        return web.json_response(answer, status=status)

    late: Callable[[], Awaitable[web.Response]] | None = answer if callable(answer) else None  # pyright: ignore[reportAssignmentType] - told apart by being callable
    service = Cloud(late or fixed)
    app = web.Application()
    app.router.add_post("/cloud/guardrails/validate", service.judge)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}/cloud"
    try:
        yield service
    finally:
        await runner.cleanup()


ALLOWED = {"status": "allowed"}
DENIED = {"status": "denied", "reason": "That topic is not allowed."}


async def test_an_allowed_question_is_validated_in_the_clouds_protocol_and_answered() -> None:
    history = TextMessage(id="a", role="assistant", content="Hello.")
    system = TextMessage(id="s", role="system", content="Be nice.")
    run = asking(system, "Hi", history, "Something fine", rules=RULES, headers=KEY)
    async with cloud(ALLOWED) as service:
        events = await log_of(ScriptedAdapter(say("Yes.")), [HttpGuardrail(service.url)], run)
    assert text_of(events) == "Yes."
    assert service.asked == [
        (
            "ck_pub_1",
            {
                "input": "Something fine",
                "validTopics": ["fine"],
                "invalidTopics": ["forbidden"],
                "messages": [
                    {"role": "user", "content": "Hi"},
                    {"role": "assistant", "content": "Hello."},
                ],
            },
        )
    ]


async def test_a_denied_question_shows_nothing_of_the_answer() -> None:
    async with cloud(DENIED) as service:
        run = asking("forbidden", rules=RULES, headers=KEY)
        events = await log_of(ScriptedAdapter(say("Sure.")), [HttpGuardrail(service.url)], run)
    error = refusal(events)
    assert error is not None
    assert (error.code, error.message) == (
        "GUARDRAILS_VALIDATION_FAILED",
        "That topic is not allowed.",
    )
    assert len(events) == 2


async def test_the_model_works_while_the_verdict_is_out_and_a_denial_stops_it() -> None:
    gate, verdict = Gate(), asyncio.Event()

    async def late() -> web.Response:
        await verdict.wait()
        return web.json_response(DENIED)

    adapter = ScriptedAdapter(say(["One", "Two"]), gate=gate)
    async with cloud(late) as service:
        run = asking("forbidden", rules=RULES, headers=KEY)
        log = asyncio.create_task(log_of(adapter, [HttpGuardrail(service.url)], run))
        gate.release(2)
        await gate.wait_for_event()  # the model has said one word and would say another
        verdict.set()
        events = await log
    assert refusal(events) is not None
    assert text_of(events) == ""


async def test_a_verdict_releases_the_withheld_events_although_the_model_is_silent() -> None:
    gate, verdict = Gate(), asyncio.Event()

    async def late() -> web.Response:
        await verdict.wait()
        return web.json_response(ALLOWED)

    async with cloud(late) as service:
        runtime = CopilotRuntime(
            adapter=ScriptedAdapter(say(["One", "Two"]), gate=gate),
            guardrails=[HttpGuardrail(service.url)],
            settings=Settings(threads="memory"),
        )
        await runtime.runtime.start(asking("fine", rules=RULES, headers=KEY))
        gate.release(2)
        await gate.wait_for_event()
        verdict.set()
        shown: list[str] = []
        async for batch in runtime.runtime.follow("r"):
            shown += [e.content for e in batch.events if isinstance(e, TextMessageContent)]
            if shown == ["One"]:
                gate.release(2)
        assert shown == ["One", "Two"]
        await runtime.aclose()


async def test_no_action_starts_before_the_verdict() -> None:
    started: list[str] = []
    asked = asyncio.Event()
    verdict = asyncio.Event()

    async def delete(arguments: Any, context: ActionContext) -> str:
        started.append(context.call_id)
        return "deleted"

    async def late() -> web.Response:
        asked.set()
        await verdict.wait()
        return web.json_response(DENIED)

    async with cloud(late) as service:
        runtime = CopilotRuntime(
            adapter=ScriptedAdapter(call("delete")),
            actions=[Action(name="delete", run=delete)],
            guardrails=[HttpGuardrail(service.url)],
            settings=Settings(threads="memory"),
        )
        await runtime.runtime.start(asking("forbidden", rules=RULES, headers=KEY))
        await asked.wait()
        verdict.set()
        events = [e async for batch in runtime.runtime.follow("r") for e in batch.events]
        await runtime.aclose()
    assert started == []
    assert not any(isinstance(event, ActionExecutionStart) for event in events)


async def test_a_turn_that_does_not_end_with_the_user_passes_unasked() -> None:
    result = ResultMessage(id="x", call_id="c", name="setColor", result="done")
    async with cloud(DENIED) as service:
        run = asking("forbidden", result, rules=RULES, headers=KEY)
        events = await log_of(ScriptedAdapter(say("Done.")), [HttpGuardrail(service.url)], run)
    assert text_of(events) == "Done."
    assert service.asked == []


async def test_a_request_without_rules_passes_unasked() -> None:
    async with cloud(DENIED) as service:
        events = await log_of(
            ScriptedAdapter(say("Hi.")), [HttpGuardrail(service.url)], asking("forbidden")
        )
    assert (text_of(events), service.asked) == ("Hi.", [])


async def test_rules_without_a_key_are_refused_before_the_run_starts() -> None:
    with pytest.raises(MissingPublicApiKey, match="X-CopilotCloud-Public-API-Key header"):
        await log_of(
            ScriptedAdapter(), [HttpGuardrail("http://127.0.0.1:9")], asking("hi", rules=RULES)
        )


async def test_the_operator_may_bring_the_key() -> None:
    async with cloud(ALLOWED) as service:
        stage = HttpGuardrail(service.url, headers={"X-CopilotCloud-Public-API-Key": "ck_pub_ours"})
        await log_of(ScriptedAdapter(say("Hi.")), [stage], asking("hi", rules=RULES))
    assert [key for key, _ in service.asked] == ["ck_pub_ours"]


@in_one_test(
    ("answer", "status", "code"),
    [
        ({"status": "perhaps"}, 200, "NETWORK_ERROR"),
        ({}, 200, "NETWORK_ERROR"),
        ([1], 200, "NETWORK_ERROR"),
        (b"<html>", 200, "NETWORK_ERROR"),
        (b"", 200, "NETWORK_ERROR"),
        (DENIED, 500, "NETWORK_ERROR"),
        ({"message": "no"}, 401, "AUTHENTICATION_ERROR"),
    ],
)
async def test_a_service_that_gives_no_verdict_refuses_or_is_skipped_as_set(
    answer: Any, status: int, code: str
) -> None:
    async with cloud(answer, status) as service:
        run = asking("hi", rules=RULES, headers=KEY)
        closed = await log_of(ScriptedAdapter(say("Hi.")), [HttpGuardrail(service.url)], run)
        opened = await log_of(
            ScriptedAdapter(say("Hi.")), [HttpGuardrail(service.url, fail_open=True)], run
        )
    error = refusal(closed)
    assert error is not None
    assert (error.code, text_of(closed)) == (code, "")
    assert text_of(opened) == "Hi."


async def test_a_service_that_is_down_refuses() -> None:
    run = asking("hi", rules=RULES, headers=KEY)
    stage: Stage = HttpGuardrail("http://127.0.0.1:9")
    error = refusal(await log_of(ScriptedAdapter(say("Hi.")), [stage], run))
    assert error is not None
    assert error.code == NetworkError.code


async def test_a_service_that_is_slow_refuses_in_time() -> None:
    never = asyncio.Event()

    async def silent() -> web.Response:
        await never.wait()
        return web.json_response(ALLOWED)

    async with cloud(silent) as service:
        run = asking("hi", rules=RULES, headers=KEY)
        stage = HttpGuardrail(service.url, timeout=0.05)
        error = refusal(await log_of(ScriptedAdapter(say("Hi.")), [stage], run))
    assert error is not None
    assert error.status_code == 504
