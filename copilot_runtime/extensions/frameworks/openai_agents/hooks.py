"""What the SDK calls in every run of an agent."""

from typing import Any

from agents import RunHooks

from copilot_runtime.api.current_run import wait_for_storage


class StorageHooks(RunHooks[Any]):
    """Lets a tool of the agent's own begin once another server would know of the call."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Raise why the tool may not begin: that ends the run."""
        del context, agent, tool
        await wait_for_storage()
