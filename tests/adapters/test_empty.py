from contextlib import aclosing

import pytest

from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.api import ChatRequest, RunInput
from copilot_runtime.base.errors import Misuse

pytestmark = pytest.mark.anyio

MESSAGE = (
    "Invalid adapter configuration: EmptyAdapter is only meant to be used with agent lock mode. \n"
    "For non-agent components like useCopilotChatSuggestions, CopilotTextarea, or CopilotTask, \n"
    "please use an LLM adapter instead."
)


def run_of(agent: str | None) -> RunInput:
    return RunInput(thread_id="t", run_id="r", messages=[], agent=agent)


def test_a_plain_chat_is_refused_before_it_starts():
    with pytest.raises(Misuse) as caught:
        EmptyAdapter().check(run_of(None))
    report = caught.value.report()
    assert (report.message, report.code, report.status_code, report.visibility) == (
        MESSAGE,
        "MISUSE",
        400,
        "dev_only",
    )


def test_an_agent_needs_no_model():
    EmptyAdapter().check(run_of("researcher"))


async def test_there_is_nothing_to_stream():
    with pytest.raises(Misuse):
        async with aclosing(EmptyAdapter().stream(ChatRequest(messages=[]))) as events:
            await anext(events)
