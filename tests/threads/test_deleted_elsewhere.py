"""Two servers share a file: what one deletes, the answer of the other does not bring back."""

from pathlib import Path

import pytest

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters.scripted import Gate
from tests.wire_agui.http import Browser, text_of
from tests.wire_agui.server import PATH, Parrot, serving

pytestmark = pytest.mark.anyio


async def test_a_thread_that_another_server_deletes_stays_deleted_when_its_answer_ends(
    tmp_path: Path,
) -> None:
    # servers that cannot reach each other: else the answer would end
    settings = Settings(threads=f"sqlite:{tmp_path / 'threads.db'}", carrier="none")
    gate = Gate()
    answering = CopilotRuntime(Parrot("one", " two", gate=gate), settings=settings)
    deleting = CopilotRuntime(Parrot("new"), settings=settings)
    async with (
        serving(answering.app(path=PATH)) as here,
        serving(deleting.app(path=PATH)) as there,
        Browser(here).running() as exchange,
    ):
        gate.release(2)
        await exchange.until("TEXT_MESSAGE_CONTENT")
        await Browser(there).ask("DELETE", "/threads/t", {"agentId": "default"})
        gate.release(10)
        events = await exchange.rest()
        listed = [
            await Browser(port).ask("GET", "/threads?agentId=default") for port in (here, there)
        ]
        replayed = [(await Browser(port).connect()).events() for port in (here, there)]
        await Browser(there).run(run="r2")
        anew = await Browser(here).connect()

    assert text_of(events) == "one two"  # who asked gets the answer
    assert [answer.json()["threads"] for answer in listed] == [[], []]
    assert replayed == [[], []]
    assert text_of(anew.events()) == "new"
