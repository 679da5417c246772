"""What becomes of a run until it goes on by itself."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Literal

from copilot_runtime.actions.sources import Source, gather_actions, select_actions
from copilot_runtime.agents.tool_loop import ToolLoopAgent, build_handoff_actions
from copilot_runtime.errors import AgentNotFound, ConfigurationFailed
from copilot_runtime.hooks import Hooks, call
from copilot_runtime.interfaces import Agent, Caller, RunInput, Stage

_PATIENCE = 10.0
"""Seconds that a chat waits to know its agents, if it needs none of them."""

logger = logging.getLogger(__name__)

_FindAgents = Callable[[Caller], Awaitable[Mapping[str, Agent]]]


@dataclass(frozen=True, slots=True)
class Acting:
    """How agents use the server's actions, and one another. `timeout` is in seconds."""

    max_turns: int = 8
    timeout: float = 60.0
    hand_over: Literal["v1", "always", "never"] = "v1"
    """Whose plain chats, and whose agents, may hand over to the agents there are."""
    model: bool = True
    """Whether there is a model. Where there is none, a chat is one with the only agent there is."""

    def hands_over(self, run: RunInput) -> bool:
        """Say whether agents may take over in this run."""
        return self.hand_over == "always" or (self.hand_over == "v1" and run.is_v1)

    def equipped(self, agent: Agent, run: RunInput) -> Agent:
        """Return the agent with what runs the actions it may call here, if there are any."""
        if all(action.in_browser for action in run.actions):
            return agent
        return ToolLoopAgent(agent, max_turns=self.max_turns, action_timeout=self.timeout)


class Beginning:
    """A run that begins, and who wants what of it meanwhile."""

    __slots__ = ("context", "error", "over", "stopped")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.context = copy_context()
        """What a hook sets here is there for the agent."""
        self.stopped: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None
        """Why its log takes no more."""
        self.over: asyncio.Future[None] = loop.create_future()

    def stop(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)


async def prepared(
    run: RunInput,
    given: Agent | None,
    hooks: Hooks,
    chat: Agent,
    find: _FindAgents,
    acting: Acting,
    stages: Sequence[Stage],
    sources: Sequence[Source],
) -> tuple[RunInput, Agent]:
    """Ask whoever has a say in a run; return it as they want it, and who answers."""
    try:
        if hooks.before_request is not None:
            run = await _asked(hooks, run)
        handing = acting.hands_over(run)
        agents: Mapping[str, Agent] = {}
        if run.agent is not None or not acting.model:
            agents = await find(run.caller)
        elif handing:
            agents = await _found_in_time(find, run.caller)
        if run.agent is None and run.request_type == "Chat" and not acting.model:
            run = replace(run, agent=next(iter(agents)) if len(agents) == 1 else None)
        agent = given or (chat if run.agent is None else agent_of(agents, run.agent))
        for part in (*stages, agent):
            if check := getattr(part, "check", None):
                check(run)
        # after the hook, so that actions may depend on what it verified
        server = await gather_actions(sources, run) if sources else []
        if handing and agents:
            server = [*server, *build_handoff_actions(agents, run, server)]
    except SystemExit as error:  # it would end the server
        raise RuntimeError("What prepares a run called sys.exit().") from error
    if run.agent is not None:
        run = replace(run, actions=select_actions(server, run.actions, for_agent=True))
        agent = acting.equipped(agent, run)
    elif server:
        run = replace(run, actions=[*server, *run.actions])
    return run, agent


async def _found_in_time(find: _FindAgents, caller: Caller) -> Mapping[str, Agent]:
    """Return the agents that a chat may hand over to. It can do without them."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await find(caller)
    except Exception:  # an application's function, and endpoints elsewhere
        logger.exception("This chat has no agents to hand over to.")
        return {}


def agent_of(agents: Mapping[str, Agent], name: str) -> Agent:
    """Return the agent of that name. Raises `AgentNotFound`."""
    try:
        return agents[name]
    except KeyError:
        raise AgentNotFound(name, agents) from None


async def _asked(hooks: Hooks, run: RunInput) -> RunInput:
    """Return the run as the `before_request` hook wants it."""
    changed = await call(hooks.before_request, run)
    if changed is None:
        return run
    if not isinstance(changed, RunInput):
        raise ConfigurationFailed(
            f"The before_request hook returned a {type(changed).__name__}.",
            hint="It returns None, or a RunInput: dataclasses.replace(run, ...).",
        )
    # what the transport knows it by
    mine = {"run_id": run.run_id, "log_id": run.log_id, "thread_id": run.thread_id}
    return replace(changed, **mine, user=run.user, persist=run.persist)


def is_cancelled() -> bool:
    """Say whether somebody cancelled this task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def noted(task: asyncio.Task[Any]) -> None:
    """Take the exception of a task that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
