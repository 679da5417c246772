"""An agent of the Agents SDK that asks a person before it launches a rocket."""

from collections.abc import Callable, Sequence
from typing import Any

from agents import Agent, function_tool

from tests.extensions.frameworks.sdk_model import Output, PlayingModel, call, text


def build_launcher(
    effect: Callable[[str], None], *also: Output, tool: str = "launch"
) -> Agent[Any]:
    """Return an agent that calls its tool, and what else is given, and then repeats the results."""

    @function_tool(needs_approval=True, name_override=tool)
    def launch(rocket: str) -> str:
        effect(rocket)
        return f"{rocket} is gone"

    def play(heard: list[Any]) -> Sequence[Output]:
        if told := [one["output"] for one in heard if one.get("type") == "function_call_output"]:
            return [text(f"Then: {', '.join(told)}")]
        return [call(tool, '{"rocket": "A"}'), *also]

    return Agent(name="Desk", model=PlayingModel(play), tools=[launch])
