"""Our runtime as somebody else's upstream: `python -m tests.conformance.behind_node`.

At `/ck` it is a remote endpoint for the Node runtime 1.10.6 and, by AG-UI, an agent for the Node
runtime 1.74.
"""

from contextlib import suppress
from typing import Annotated

import uvicorn
from pydantic import Field

from copilot_runtime import CopilotRuntime, Events, RunInput, Settings, action
from copilot_runtime.adapters.scripted import call, say
from copilot_runtime.api.events import AgentState, Interrupt
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.base.errors import NetworkError


@action(name="remoteAdd")
def remote_add(
    a: Annotated[float, Field(description="first")],
    b: Annotated[float, Field(description="second")],
) -> float:
    """Add two numbers remotely."""
    return a + b


class Scripted:
    """Does what the last message asks for."""

    description = "Ours."

    async def run(self, run: RunInput) -> Events:
        name, id = run.agent or "", f"said-{len(run.messages)}"
        asked = [message.content for message in run.messages if isinstance(message, TextMessage)]
        if run.resume:
            for event in say(f"Hello {run.resume[0].response}", id=id):
                yield event
        elif isinstance(done := run.messages[-1], ResultMessage):
            for event in say(f"It came to {done.result}", id=id):
                yield event
        elif "[[interrupt]]" in asked[-1]:
            yield Interrupt(interrupt_id="i", value="Your name?")
        elif "[[ouraction]]" in asked[-1]:
            for event in call("remoteAdd", {"a": 1, "b": 2}, id="call-add"):
                yield event
        elif "[[pageaction]]" in asked[-1]:
            for event in call("setColor", {"color": "blue"}, id="call-color"):
                yield event
        else:
            yield AgentState(agent=name, state={"step": 1, "known": _known(run)}, node="think")
            for event in say(["Agent ", "says ", "hi"], id=id):
                yield event
            if "[[agenterror]]" in asked[-1]:
                raise NetworkError("The model is down.")
            yield AgentState(agent=name, state={"step": 2}, node="end", running=False)


def _known(run: RunInput) -> object:
    """Return what the client remembers of the agent."""
    return {name: agent.state for name, agent in run.agents.items()}


def main() -> None:
    """Serve at a free port, which is printed."""
    runtime = CopilotRuntime(
        actions=[remote_add],
        agents={"research_agent": Scripted(), "default": Scripted()},
        settings=Settings(threads="memory", serve_remote=True, path="/ck"),
    )
    config = uvicorn.Config(runtime.app(), host="127.0.0.1", port=0, log_level="critical")
    with config.bind_socket() as sock:
        sock.listen()  # whoever reads the address may come before the server has started
        print(f"python runtime on http://localhost:{sock.getsockname()[1]}", flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
