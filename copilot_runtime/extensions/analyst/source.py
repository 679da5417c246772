"""The analyst's tools as actions for MCP clients, programs and, if shared, other agents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.extensions.analyst.agent import AnalystAgent
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.question import MAX_QUESTION, read_question
from copilot_runtime.extensions.analyst.tools.call import TOOLS, call_tool, render_output


class AnalystTools(ActionSource):
    """Offers the tools of the first analyst; each call runs in its caller's scope.

    Args:
        agents: The analysts, by name.
        share: `True` to offer them to chats and other agents as well as to programs.
    """

    def __init__(self, agents: Mapping[str, Agent], *, share: bool) -> None:
        self._names = frozenset(agents)
        self._analyst = next(
            (one.analyst for one in agents.values() if isinstance(one, AnalystAgent)), None
        )
        self._share = share

    async def actions(self, run: RunInput) -> Sequence[Action]:
        """Return the tools for a run; empty if its agent is an analyst, which has its own."""
        if self._analyst is None or run.agent in self._names:
            return ()
        if not self._share and run.request_type != "Action":
            return ()
        return [
            Action(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                run=partial(_call, self._analyst, run, tool.name),
                timeout=self._analyst.tool_timeout,
                is_idempotent=tool.effect == "none",
            )
            for name, tool in TOOLS.items()
            if name in self._analyst.active_tools
        ]


async def _call(
    analyst: Analyst,
    run: RunInput,
    name: str,
    arguments: Mapping[str, Any],
    context: ActionContext,
) -> str:
    """Run a call for the caller of a run, and record it in memory."""
    question = read_question(run)
    if not question.dataset_label and isinstance(label := arguments.get("dataset"), str):
        question = replace(question, dataset_label=label[:200])
    scope = await analyst.build_scope(run.caller, question.agent_name)
    message = question.message[:MAX_QUESTION]
    session = await analyst.open_session(
        scope, question=question, message=message, span=context.span
    )
    result = await call_tool(session, name, arguments)
    return render_output(result)
