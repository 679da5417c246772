"""Sessions begin when they are needed, are shared, and end: well, badly, or for lack of use."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from copilot_runtime.api import RunInput
from copilot_runtime.base.errors import CopilotError, LimitExceeded, NetworkError, RunStalled
from copilot_runtime.extensions.mcp.client import McpServer, source
from copilot_runtime.extensions.mcp.client.pool import SessionPool
from copilot_runtime.extensions.mcp.client.session import Session
from copilot_runtime.extensions.mcp.client.tools import parse_tool_result
from tests.extensions.mcp.client.conftest import CONTEXT, Ask, Pipes
from tests.extensions.mcp.client.servers import COMMAND, Served, serve

pytestmark = pytest.mark.anyio


async def end_session(served: Served) -> None:
    """Make the server forget its session, as after a restart."""
    id = next(it["mcp-session-id"] for it in reversed(served.headers) if "mcp-session-id" in it)
    async with httpx2.AsyncClient() as client:
        await client.delete(served.url, headers={"mcp-session-id": id})


async def test_a_stdio_server_is_started_and_stops_cancelled_calls(
    ask: Ask,
) -> None:
    asked = ask(McpServer(command=COMMAND, env={"GREETING": "Ahoy"}))

    assert await asked.do("variable", name="GREETING") == "Ahoy"
    call = asyncio.create_task(asked.do("forever"))
    await asked.do("mcpEcho", text="after it")  # pipes keep the order
    call.cancel()

    assert await asked.do("wait_for_cancellation") == "It was cancelled."


async def test_a_process_gets_no_variables_but_its_own(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    asked = ask(McpServer(command=COMMAND))

    assert await asked.do("variable", name="OPENAI_API_KEY") == "unset"


@pytest.mark.parametrize("sse", [False, True])
async def test_over_http_a_cancelled_call_is_cancelled_on_the_server(sse: bool, ask: Ask) -> None:
    async with serve(sse=sse) as served:
        asked = ask(McpServer(served.url))
        call = asyncio.create_task(asked.do("forever"))
        await served.began.wait()
        call.cancel()

        await served.cancelled.wait()
        assert await asked.do("mcpEcho", text="still here") == "echo still here"
        assert served.sessions == 1
        await asked.source.aclose()


async def test_concurrent_runs_share_one_session(served: Served, ask: Ask) -> None:
    # twenty connections at once: on a busy machine the last of them waits for long
    asked = ask(McpServer(served.url, connect_timeout=300.0))

    results = await asyncio.gather(*(asked.do("mcpEcho", text=str(n)) for n in range(20)))

    assert results == [f"echo {n}" for n in range(20)]
    assert served.sessions == 1


async def test_callers_with_other_credentials_have_sessions_of_their_own(
    served: Served, ask: Ask
) -> None:
    async def headers(run: RunInput) -> dict[str, str]:
        return {"authorization": run.headers["authorization"]}

    asked = ask(McpServer(served.url, headers=headers))
    for who in ("ann", "bob", "ann"):
        run = RunInput(thread_id="t", run_id="r", messages=[], headers={"authorization": who})
        assert await asked.actions(run)

    sent = [it["authorization"] for it in served.headers]
    assert served.sessions == 2
    assert sorted({*sent}) == ["ann", "bob"]


async def test_who_has_no_credentials_gets_no_actions(
    served: Served, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    def headers(run: RunInput) -> dict[str, str]:
        return {"authorization": run.headers["authorization"]}

    assert await ask(McpServer(served.url, headers=headers)).actions() == {}
    assert "left out of this run" in caplog.text
    assert served.headers == []


async def test_a_session_that_the_server_forgot_is_opened_anew(served: Served, ask: Ask) -> None:
    asked = ask(McpServer(served.url))
    echo = (await asked.actions())["mcpEcho"]
    await end_session(served)

    assert echo.run is not None
    assert await echo.run({"text": "hey"}, CONTEXT) == "echo hey"
    assert served.sessions == 2


async def test_a_server_without_sessions_is_understood_too(ask: Ask) -> None:
    async with serve() as served:
        served.modern = True
        server = McpServer(served.url, prompts=["*"])
        asked = ask(server)

        assert await asked.do("mcpEcho", text="hey") == "echo hey"
        with pytest.raises(CopilotError, match="says: "):
            await asked.do(f"{server.slug}_get_prompt", name="nothing")
        await asked.source.aclose()


async def test_a_process_that_died_is_started_again_and_what_it_did_is_not_done_twice(
    ask: Ask, pipes: Pipes
) -> None:
    asked = ask(pipes(dies=True))

    with pytest.raises(NetworkError, match="broke off"):
        await asked.do("work")
    pid, calls = (await asked.do("work")).split()

    assert calls == "2"
    await asked.source.aclose()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def test_what_only_reads_is_done_again_after_a_process_died(ask: Ask, pipes: Pipes) -> None:
    assert (await ask(pipes(dies=True)).do("look")).endswith(" 2")


async def test_a_process_killed_between_two_runs_is_started_again(pipes: Pipes) -> None:
    pool = SessionPool()
    connection = pool.connect(pipes(), {})
    pids: list[str] = []

    async def work(session: Session) -> asyncio.Task[None]:
        result = await session.call("work", {}, is_idempotent=False)
        pids.append(parse_tool_result(result).split()[0])
        return session.task

    task = await connection.ask(work)
    os.kill(int(pids[0]), 9)
    await asyncio.wait([task])
    await connection.ask(work)

    assert len({*pids}) == 2
    await pool.aclose()


async def test_junk_between_the_messages_of_a_process_is_passed_over(
    ask: Ask, pipes: Pipes
) -> None:
    assert (await ask(pipes("junk")).do("work")).endswith(" 1")


async def test_a_process_that_never_answers_is_left_out_and_ended(
    ask: Ask, pipes: Pipes, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ask(pipes("silent", connect_timeout=0.05), pipes())

    assert [*await asked.actions()] == ["work", "look"]
    assert "It cannot be reached: no answer within 0.05 s." in caplog.text


async def test_a_program_that_is_not_there_is_left_out(
    ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    assert await ask(McpServer(command=["no-such-program"])).actions() == {}
    assert "'no-such-program' is left out of this run" in caplog.text


async def test_a_dead_server_is_skipped_and_tried_again(
    served: Served, ask: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "QUICK", 600.0)  # on a machine that is busy nothing is
    asked = ask(McpServer(served.url))

    served.refuse = 503
    assert await asked.actions() == {}
    served.refuse = 0

    assert "mcpEcho" in await asked.actions()
    assert "it answered with status 503" in caplog.text


async def test_a_server_that_begins_to_refuse_fails_the_call_with_its_status(
    served: Served, ask: Ask
) -> None:
    asked = ask(McpServer(served.url))
    echo = (await asked.actions())["mcpEcho"]
    served.refuse = 401

    assert echo.run is not None
    with pytest.raises(NetworkError, match="answered with status 401"):
        await echo.run({"text": "hey"}, CONTEXT)


async def test_a_session_that_is_refused_ends_and_the_next_is_another(served: Served) -> None:
    pool = SessionPool()
    sessions: list[Session] = []

    async def echo(session: Session) -> None:
        sessions.append(session)
        await session.call("mcpEcho", {"text": "hey"}, is_idempotent=False)

    connection = pool.connect(McpServer(served.url), {})
    await connection.ask(echo)
    served.refuse = 401
    with pytest.raises(NetworkError):
        await connection.ask(echo)
    await asyncio.wait([sessions[0].task])
    served.refuse = 0
    await connection.ask(echo)

    first, again, other = sessions
    assert (first is again, first.task.done(), other.alive) == (True, True, True)
    await pool.aclose()


async def test_nothing_listens_there(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as served:
        url = served.url

    assert await ask(McpServer(f"{url}?api_key=hush")).actions() == {}
    assert "It cannot be reached" in caplog.text
    assert "hush" not in "".join(it.message for it in caplog.records if "copilot" in it.name)


async def test_silence_ends_a_call_and_progress_does_not(served: Served, ask: Ask) -> None:
    asked = ask(McpServer(served.url, timeout=2.0))

    assert await asked.do("slowly", steps=12, pause=0.1) == "done"
    with pytest.raises(RunStalled, match="said nothing for 2 s"):
        await asked.do("forever")
    await served.cancelled.wait()


async def test_an_unused_session_is_closed(served: Served) -> None:
    pool = SessionPool(idle=0.01)
    async with pool.session(McpServer(served.url), {}) as session:
        await session.tools()

    await asyncio.wait([session.task])

    assert session.task.done()
    assert served.headers[-1]["mcp-session-id"]  # of the DELETE
    await pool.aclose()


async def test_a_session_in_use_is_not_closed(served: Served) -> None:
    pool = SessionPool(idle=0.01)
    async with pool.session(McpServer(served.url), {}) as session:
        result = await session.call("slowly", {"steps": 2, "pause": 0.1}, is_idempotent=True)

    assert not result.is_error
    await pool.aclose()


async def test_the_session_unused_for_longest_makes_place(served: Served) -> None:
    pool = SessionPool(most=2)
    server = McpServer(served.url)
    sessions: list[Session] = []
    for who in "abc":
        async with pool.session(server, {"x-user": who}) as session:
            sessions.append(session)

    assert [session.alive for session in sessions] == [False, True, True]
    async with pool.session(server, {"x-user": "b"}), pool.session(server, {"x-user": "c"}):
        with pytest.raises(LimitExceeded, match="2 sessions"):
            async with pool.session(server, {"x-user": "d"}):
                pass
    await pool.aclose()


async def test_a_process_that_neither_starts_nor_ends_blocks_no_run_and_is_killed(
    pipes: Pipes, tmp_path: Path
) -> None:
    pool = SessionPool()
    connection = pool.connect(pipes("stubborn", connect_timeout=3.0), {})

    with pytest.raises(NetworkError, match="no answer within 3 s"):
        await connection.ask(Session.capabilities)
    pid = int((tmp_path / "calls").read_text())
    os.kill(pid, 0)  # it is still there: killing it takes a while, for which nobody waited
    await pool.aclose()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_closing_does_not_wait_for_a_server_that_does_not_answer(pipes: Pipes) -> None:
    pool = SessionPool()
    asking = asyncio.create_task(pool.connect(pipes("silent"), {}).ask(Session.capabilities))
    await asyncio.sleep(0)

    await pool.aclose()
    with pytest.raises(NetworkError, match="given up"):
        await asking


async def test_what_was_closed_can_be_used_again(served: Served, ask: Ask) -> None:
    asked = ask(McpServer(served.url))
    await asked.do("mcpEcho", text="one")
    await asked.source.aclose()

    assert await asked.do("mcpEcho", text="two") == "echo two"


async def test_a_new_tool_is_there_as_soon_as_the_server_tells(served: Served, ask: Ask) -> None:
    asked = ask(McpServer(served.url))
    await asked.do("learn", name="juggle")

    while "juggle" not in await asked.actions():
        pass
    assert await asked.do("juggle") == "I am juggle"


async def test_tools_are_listed_once(served: Served, ask: Ask) -> None:
    asked = ask(McpServer(served.url))

    await asyncio.gather(*(asked.actions() for _ in range(5)))

    assert served.methods.count("tools/list") == 1


async def test_tools_are_listed_again_without_a_change_notification(
    served: Served, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copilot_runtime.extensions.mcp.client.session.TOOLS_TTL", -1)
    asked = ask(McpServer(served.url))

    await asked.actions()
    assert "mcpEcho" in await asked.actions()

    while served.methods.count("tools/list") == 1:  # noqa: ASYNC110  # the background has no event
        await asyncio.sleep(0.01)


async def test_a_server_that_hangs_delays_one_run_and_is_queried_in_the_background(
    served: Served, ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served.answers.clear()
    asked = ask(McpServer(served.url, connect_timeout=300.0))

    monkeypatch.setattr(source, "SERVER_TIMEOUT", 0.05)
    assert await asked.actions() == {}
    assert "It did not answer within 0.05 s." in caplog.text
    monkeypatch.setattr(source, "SERVER_TIMEOUT", 3600.0)
    for _ in range(3):
        assert await asyncio.wait_for(asked.actions(), 60) == {}
    assert served.sessions <= 1

    served.answers.set()
    while not await asked.actions():  # noqa: ASYNC110  # the background has no event
        await asyncio.sleep(0.01)


async def test_a_server_that_fails_after_a_while_delays_one_run(
    served: Served, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "QUICK", 0.0)
    asked = ask(McpServer(served.url))
    served.refuse = 503
    assert await asked.actions() == {}
    served.refuse = 0
    served.answers.clear()

    assert await asyncio.wait_for(asked.actions(), 60) == {}  # it does not wait for the answer

    served.answers.set()
    while "mcpEcho" not in await asked.actions():  # noqa: ASYNC110  # the background has no event
        await asyncio.sleep(0.01)
