"""What has the one method that counts is completed; what inherits is left alone."""

import pytest

from copilot_runtime.api import Agent, RunInput, Stage
from copilot_runtime.api.argument_checks import as_stage, complete
from copilot_runtime.api.events import Custom, Events, RunFinished
from copilot_runtime.event_order.verify import verify_events
from tests.runs import Says, log_of, run_input, runtime_with

pytestmark = pytest.mark.anyio


class Echo:
    """An agent that inherits from nothing, with one optional method and one of its own."""

    description = "Repeats"
    volume = 11

    async def run(self, run: RunInput) -> Events:
        yield Custom(name="echo", value=run.run_id)


def test_a_part_that_inherits_is_passed_on_as_it_is() -> None:
    class Mine(Agent):
        """An agent."""

    mine = Mine()
    assert complete(Agent, mine) is mine


async def test_what_is_missing_has_the_default_of_the_interface() -> None:
    agent = complete(Agent, Echo())
    agent.check(run_input())
    await agent.aclose()

    assert isinstance(agent, Agent)
    assert [event async for event in agent.run(run_input("r7"))] == [
        Custom(name="echo", value="r7")
    ]


def test_what_is_there_is_the_part_s_own_also_when_it_changes_later() -> None:
    part = Echo()
    agent = complete(Agent, part)
    part.description = "Repeats loudly"

    assert (agent.description, type(agent).__name__) == ("Repeats loudly", "Echo")
    assert getattr(agent, "volume") == 11  # noqa: B009  # the interface has no such attribute


async def test_a_plain_function_is_a_stage() -> None:
    async def shorten(events: Events, run: RunInput) -> Events:
        async for event in events:
            if not isinstance(event, Custom):
                yield event

    runtime = runtime_with(Says(Custom(name="long", value=None)), stages=[shorten])
    await runtime.start(run_input())

    assert isinstance(as_stage(shorten), Stage)
    assert (await log_of(runtime))[1:] == [RunFinished()]


def test_a_stage_of_ours_is_used_without_a_wrapper() -> None:
    stage = as_stage(verify_events)
    assert as_stage(stage) is stage
