"""Tools that return what a file says, in place of those of the server."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from copilot_runtime.actions.json_schema import list_misfits
from copilot_runtime.actions.sources import gather_actions
from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.extensions.scenarios.definition import ToolStub


def build_tool(stub: ToolStub, *, in_browser: bool) -> Action:
    """Return a tool that answers with what a file says.

    One of the page sends its error as a page would; one of the server fails with it.
    """
    results = [*stub.results] or [stub.result]

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        if stub.error is None:
            return results.pop(0) if len(results) > 1 else results[0]
        if in_browser:
            return {"error": stub.error}
        raise CopilotError(stub.error)

    return Action(name=stub.name, description=stub.description, parameters=stub.parameters, run=run)


class StubbedSource(ActionSource):
    """The actions of other sources, some of them replaced in the threads of some scenarios."""

    def __init__(self, sources: Sequence[ActionSource]) -> None:
        self._sources = sources
        self._stubs: dict[str, Mapping[str, Action]] = {}

    @contextmanager
    def attach(self, thread_id: str, stubs: Sequence[ToolStub]) -> Generator[None]:
        """Replace actions in a thread."""
        self._stubs[thread_id] = {it.name: build_tool(it, in_browser=False) for it in stubs}
        try:
            yield
        finally:
            del self._stubs[thread_id]

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the actions for a run. One that is replaced keeps what a model is told of it."""
        stubs = self._stubs.get(run.thread_id, {})
        actions = await gather_actions(self._sources, run)
        names = {action.name for action in actions}
        return [
            *(_replace(action, stubs.get(action.name)) for action in actions),
            *(stub for name, stub in stubs.items() if name not in names),
        ]

    async def aclose(self) -> None:
        """Close the other sources."""
        for source in self._sources:
            await source.aclose()


def _replace(action: Action, stub: Action | None) -> Action:
    """Return an action that checks its arguments, and then does what the stub does."""
    if stub is None or (answer := stub.run) is None:
        return action

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        if misfits := list_misfits(values, action.parameters):
            raise Misuse(f"The arguments are wrong: {'; '.join(misfits)}")
        return await answer(values, context)

    return replace(action, run=run)
