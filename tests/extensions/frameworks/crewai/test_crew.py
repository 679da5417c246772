"""A real crew of CrewAI, which `ag-ui-crewai` serves, answers pages of both generations."""

import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from copilot_runtime import AguiAgent, action
from tests.agents.pages import PAINT, asked_v1, followed_up, page_v1, results, texts_v1
from tests.extensions.frameworks.crewai.model import Model
from tests.processes import running
from tests.site.conftest import listening
from tests.wire.client import user as user_v1
from tests.wire_agui.http import text_of, user
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[4] / "examples" / "crew"
PYTHON = "COPILOT_TEST_CREWAI_PYTHON"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the crew of the example with a model on loopback; return its address."""
    python = os.environ.get(PYTHON)
    if not python:
        pytest.skip(f"A real crew: name the python of examples/crew/README.md in {PYTHON}.")
    folder = tmp_path_factory.mktemp("crew")
    with listening(Model) as model:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "OPENAI_API_KEY": "key",
            "OPENAI_BASE_URL": f"{model}/v1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "CREWAI_STORAGE_DIR": str(folder),
            "HOME": str(folder),
            # whatever else wants to leave this machine finds no way
            "HTTP_PROXY": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
        }
        command = [python, "-m", "uvicorn", "--app-dir", EXAMPLE, "crew:app", "--port", "0"]
        with running(command, cwd=folder, env=environment) as program:
            yield f"{program.errors.until(r'http://127.0.0.1:[0-9]+')[0]}/crew"


@pytest.fixture
async def crew(url: str) -> AsyncGenerator[AguiAgent, None]:
    agent = AguiAgent(url)
    yield agent
    await agent.aclose()


async def test_an_agui_page_gets_the_answer_of_the_crew_and_its_steps(crew: AguiAgent) -> None:
    async with browsing(agents={"it": crew}) as browser:
        events = (await browser.run(agent="it", messages=[user("Cats?")])).events()

    assert text_of(events) == "I hear: Cats sleep a lot."
    steps = [event["stepName"] for event in events if event["type"] == "STEP_STARTED"]
    assert steps == ["chat", "Research", "Researcher"]
    assert events[-1]["type"] == "RUN_FINISHED"


async def test_an_agui_page_runs_its_action_for_the_crew(crew: AguiAgent) -> None:
    async with browsing(agents={"it": crew}) as browser:
        messages = [user("setColor")]
        called = (await browser.run(agent="it", messages=messages, tools=[PAINT])).events()
        messages = [*messages, *followed_up(called, "It is red.")[1:]]
        answer = await browser.run(agent="it", run="r2", messages=messages, tools=[PAINT])

    assert "setColor" in [event.get("toolCallName") for event in called]
    assert text_of(answer.events()) == "I hear: It is red."


async def test_the_chat_of_the_crew_calls_an_action_of_the_server(crew: AguiAgent) -> None:
    @action
    def get_time() -> str:
        """Return the time."""
        return "12:00"

    async with browsing(agents={"it": crew}, actions=[get_time]) as browser:
        events = (await browser.run(agent="it", messages=[user("get_time")])).events()

    assert results(events) == ["12:00"]
    assert text_of(events) == "I hear: 12:00"


async def test_a_v1_page_gets_the_answer_of_the_crew_and_its_state(crew: AguiAgent) -> None:
    async with page_v1(crew) as client:
        answer: Any = await asked_v1(client, user_v1("Cats?"))

    assert texts_v1(answer) == ["I hear: Cats sleep a lot."]
    states = [message for message in answer["messages"] if "state" in message]
    assert "Cats sleep a lot." in states[-1]["state"]
    assert (states[-1]["running"], answer["status"]["code"]) == (False, "Success")
