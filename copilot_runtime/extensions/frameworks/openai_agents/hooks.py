"""Hooks that the SDK calls in every run of an agent."""

from typing import Any

from agents import RunHooks

from copilot_runtime.api.run_input import wait_for_storage


class StorageHooks(RunHooks[Any]):
    """Delays the agent's own tools until their call is stored (durable before visible)."""

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        """Wait until the call is stored. Raises the store's error, which ends the run."""
        del context, agent, tool
        await wait_for_storage()
