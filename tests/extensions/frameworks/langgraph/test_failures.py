"""What a page learns of a failure: what a person can mend, and nothing of what may be secret."""

import pytest

from tests.extensions.frameworks.langgraph.asking import new_thread
from tests.extensions.frameworks.langgraph.conftest import Make
from tests.wire_agui.server import browsing

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("graph", "code", "message"),
    [
        (
            "looping",
            "LIMIT_EXCEEDED",
            "The agent 'it' reached its recursion limit of 4 steps without coming to an end. "
            "A higher `recursion_limit` in its config allows more.",
        ),
        (
            "ordering",
            "MISUSE",
            "The agent 'it' needs more input: its state lacks topic.",
        ),
        ("topical", "MISUSE", "The agent 'it' needs more input: its state lacks topic."),
        ("forgetful", "MISUSE", "The agent 'it' received no input."),
    ],
)
async def test_a_failure_that_a_person_can_mend_says_how(
    make: Make, graph: str, code: str, message: str
) -> None:
    async with browsing(agents={"it": make(graph, config={"recursion_limit": 4})}) as browser:
        [*_, last] = (await browser.run(agent="it", thread=new_thread())).events()

    assert (last["type"], last["code"], last["message"]) == ("RUN_ERROR", code, message)


@pytest.mark.parametrize("graph", ["checking", "pretending", "elsewhere"])
async def test_any_other_failure_shows_nothing_of_its_text(make: Make, graph: str) -> None:
    async with browsing(agents={"it": make(graph)}) as browser:
        answer = await browser.run(agent="it", thread=new_thread())

    assert answer.events()[-1]["type"] == "RUN_ERROR"
    assert "hunter2" not in answer.body.decode()
    assert "secret_field" not in answer.body.decode()
    assert "password" not in answer.body.decode()
