"""Prepare a run: call the hook, choose the agent, check the request, and gather the actions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from copilot_runtime.actions.sources import ActionList, gather_actions, select_actions
from copilot_runtime.adapters.parameters import merge_parameters
from copilot_runtime.agents.direct import FileStoringAgent, stores_files
from copilot_runtime.agents.instructions import InstructedAgent
from copilot_runtime.agents.tool_loop import ToolLoopAgent, build_handoff_actions
from copilot_runtime.api.action import Action, ActionSource
from copilot_runtime.api.agent import Agent, Middleware, Stage, SupportsRun
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.hooks import Hooks, call
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.retrieval import FileStore
from copilot_runtime.api.run_input import Overrides, RunInput
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import AgentNotFound, ConfigurationFailed, Misuse
from copilot_runtime.runtime.interrupts import check_agent
from copilot_runtime.runtime.page_policy import PagePolicy
from copilot_runtime.runtime.thread_policy import Continuation, ThreadPolicy

_HANDOFF_TIMEOUT = 10.0
"""Timeout of the agent lookup for a chat that needs no agent except for handoffs, in seconds."""

logger = logging.getLogger(__name__)

FindAgents = Callable[[Caller], Awaitable[Mapping[str, Agent]]]


@dataclass(frozen=True, slots=True)
class HandoffPolicy:
    """How agents use the server's actions and hand off to one another. `timeout` is in seconds."""

    max_turns: int = 8
    timeout: float = 60.0
    hand_over: Literal["v1", "always", "never"] = "v1"
    """Whether chats and agents may hand off: only for v1 clients, always, or never."""
    model: bool = True
    """`True` if there is a model. Without one, the only agent answers the plain chat."""

    def allows(self, run: RunInput) -> bool:
        """Return `True` if agents may take over in this run."""
        return self.hand_over == "always" or (self.hand_over == "v1" and run.is_v1)

    def add_tool_loop(self, agent: Agent, run: RunInput) -> Agent:
        """Wrap the agent in a loop that executes its calls, or refuses them, if it may call any."""
        if not run.actions:
            return agent
        return ToolLoopAgent(agent, max_turns=self.max_turns, action_timeout=self.timeout)


class PendingRun(NamedTuple):
    """A prepared run that is ready to start."""

    request: RunInput
    agent: Agent
    is_rewritten: bool = False
    """`True` if readers of the thread need a new snapshot of the conversation."""
    url: str = ""
    """URL of a remote agent; empty for a local one."""
    provider: str = ""
    """Name of the remote agent's provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPreparer:
    """Prepares runs before their agents are called."""

    chat: Agent
    """The agent for requests that name no agent."""
    agents: Mapping[str, Agent] | None
    """The agents of all callers; `None` if `find_agents` calls a function for each run."""
    find_agents: FindAgents
    sources: Sequence[ActionSource]
    stages: Sequence[Stage]
    hooks: Hooks
    handoff: HandoffPolicy
    pages: PagePolicy
    threads: ThreadPolicy
    files: FileStore | None = None
    """Store for files sent to an agent; `chat` stores the files of a plain chat itself."""
    middleware: Sequence[Middleware] = ()
    """Wrappers around the agents of AG-UI clients, innermost first."""

    def is_immediate(self, request: RunInput, agent: SupportsRun | None) -> bool:
        """Return whether `prepare_run` waits for nothing, neither the application nor the store."""
        if self.agents is None or self.hooks.before_request is not None:
            return False
        if not all(type(source) is ActionList for source in self.sources):
            return False
        answering = self._guess_agent(request, self.agents, agent)
        return not self.threads.reads_thread(request, answering)

    async def prepare_run(
        self, request: RunInput, agent: SupportsRun | None = None, *, is_immediate: bool = False
    ) -> PendingRun:
        """Return the prepared run. A given `agent` answers it.

        Raises the errors of the hook and of the checks, and `AgentNotFound`.
        """
        agents = await self._find_agents(request)
        continued = Continuation(request)
        if not is_immediate:
            continued = await self._continue_thread(request, agents, agent)
        original, is_rewritten, asking = continued
        original = self.pages.apply(original)
        request = await self._call_before_request(original)
        if request is not original and (
            (request.agent, request.caller) != (original.agent, original.caller)
        ):
            agents = await self._find_agents(request)
        request = self._choose_only_agent(request, agents)
        if asking is not None:
            check_agent(request, asking)
        answering = self._select_agent(request, agents, agent)
        if answering is self.chat and not self.handoff.model:
            raise _no_model(agents)
        if request.overrides is not None:
            request, answering = apply_overrides(request, request.overrides, answering)
        for part in (*self.stages, answering):
            part.check(request)
        actions = await self._gather_actions(request, agents)
        pending = self._add_actions(request, answering, actions, is_rewritten=is_rewritten)
        return self._wrap_agent(pending) if self.middleware else pending

    def _wrap_agent(self, pending: PendingRun) -> PendingRun:
        """Wrap the agent in the middleware if the run belongs to an AG-UI client's thread."""
        run, agent = pending.request, pending.agent
        if run.is_v1 or not run.persist:
            return pending
        for one in self.middleware:
            run = one.mark(run)
            agent = one.wrap(agent, run)
        return pending._replace(request=run, agent=agent)

    async def authorize_run(self, request: RunInput) -> RunInput:
        """Check a request that is not a run, and return it as changed by the hook.

        Raises the errors of the hook and of the checks, and `AgentNotFound`.
        """
        request = await self._call_before_request(self.pages.apply(request))
        agents = await self._find_agents(request)
        request = self._choose_only_agent(request, agents)
        answering = self._select_agent(request, agents, None)
        if answering is self.chat and not self.handoff.model:
            raise _no_model(agents)
        for part in (*self.stages, answering):
            part.check(request)
        return request

    async def _continue_thread(
        self, request: RunInput, agents: Mapping[str, Agent], agent: SupportsRun | None
    ) -> Continuation:
        """Return the run with its thread's conversation, before the hook is called."""
        answering = self._guess_agent(request, agents, agent)
        return await self.threads.continue_thread(request, answering)

    def _guess_agent(
        self, request: RunInput, agents: Mapping[str, Agent], agent: SupportsRun | None
    ) -> Agent | None:
        """Return the agent before the hook is called, which may still choose another one."""
        with suppress(AgentNotFound):
            return self._select_agent(self._choose_only_agent(request, agents), agents, agent)
        return None

    async def _call_before_request(self, request: RunInput) -> RunInput:
        """Return the request as changed by the `before_request` hook."""
        if self.hooks.before_request is None:
            return request
        changed = await call(
            self.hooks.before_request, request, name="before_request", parent=request.span
        )
        if changed is None:
            return request
        if not isinstance(changed, RunInput):
            raise ConfigurationFailed(
                f"The before_request hook returned a {type(changed).__name__}.",
                hint="It returns None, or a RunInput: dataclasses.replace(run, ...).",
            )
        return replace(
            changed,  # but keep the identifiers that the transport and the store use
            run_id=request.run_id,
            log_id=request.log_id,
            thread_id=request.thread_id,
            user=request.user,
            thread_ids=request.thread_ids,
            checkpoints=request.checkpoints,
            persist=request.persist,
            parent=request.parent,
            span=request.span,
            budget=request.budget,
        )

    async def _find_agents(self, request: RunInput) -> Mapping[str, Agent]:
        """Return the agents that this run may need, by name."""
        is_needed = request.agent is not None or not self.handoff.model
        if not is_needed and not self.handoff.allows(request):
            return {}
        if self.agents is not None:
            return self.agents
        if is_needed:
            return await self.find_agents(request.caller)
        try:
            async with asyncio.timeout(_HANDOFF_TIMEOUT):
                return await self.find_agents(request.caller)
        except (
            Exception
        ):  # an application's function or a remote endpoint failed; the chat continues
            logger.exception("This chat has no agents to hand over to.")
            return {}

    def _choose_only_agent(self, request: RunInput, agents: Mapping[str, Agent]) -> RunInput:
        """Select the only agent for a plain chat if there is no model."""
        if request.agent is None and request.request_type == "Chat" and not self.handoff.model:
            return replace(request, agent=next(iter(agents)) if len(agents) == 1 else None)
        return request

    def _select_agent(
        self, request: RunInput, agents: Mapping[str, Agent], agent: SupportsRun | None
    ) -> Agent:
        if agent is not None:
            return complete(Agent, agent)
        return self.chat if request.agent is None else get_agent(agents, request.agent)

    async def _gather_actions(
        self, request: RunInput, agents: Mapping[str, Agent]
    ) -> Sequence[Action]:
        """Return the server's actions for the request as changed by the hook."""
        actions = await gather_actions(self.sources, request) if self.sources else []
        if agents and self.handoff.allows(request):
            actions = [*actions, *build_handoff_actions(agents, request)]
        if request.overrides is not None and (names := request.overrides.tools) is not None:
            return [action for action in actions if action.name in names]
        return actions

    def _add_actions(
        self,
        request: RunInput,
        agent: Agent,
        actions: Sequence[Action],
        *,
        is_rewritten: bool,
    ) -> PendingRun:
        """Add the server's actions to those of the browser."""
        if request.agent is not None:
            selected = select_actions(actions, request.actions, for_agent=True)
            request = copy_with(request, actions=selected)
            store = None if stores_files(agent) else self.files
            url, provider = agent.url, agent.provider
            agent = self.handoff.add_tool_loop(agent, request)
            agent = FileStoringAgent(agent, store) if store else agent
            return PendingRun(request, agent, is_rewritten, url, provider)
        if actions:
            request = copy_with(request, actions=[*actions, *request.actions])
        return PendingRun(request, agent, is_rewritten)


def apply_overrides(run: RunInput, overrides: Overrides, agent: Agent) -> tuple[RunInput, Agent]:
    """Return the run with an operator's parameters, and a copy of its agent with instructions.

    The parameters are not restricted as those of pages are. Raises `Misuse` for an agent that takes
    neither.
    """
    run = replace(run, parameters=merge_parameters(run.parameters, overrides.parameters))
    if isinstance(agent, InstructedAgent):
        if overrides.instructions is not None:
            agent = copy(agent)
            agent.instructions = overrides.instructions
    elif names := [name for name in overrides.names if name != "tools"]:
        raise Misuse(
            f"The agent {run.agent_name!r} is a program of its own: its {' and '.join(names)} "
            "cannot be changed here, only its tools."
        )
    return run, agent


def _no_model(agents: Mapping[str, Agent]) -> Misuse:
    """Return the error for a plain chat without a model."""
    if names := ", ".join(agents):
        return Misuse(
            "This runtime has no model for a chat without an agent. Name one of its agents "
            f"({names}), or give CopilotRuntime an adapter such as OpenAIAdapter()."
        )
    return Misuse(
        "This runtime has no model and no agents, so nothing can answer. "
        "Give CopilotRuntime an adapter such as OpenAIAdapter(), or agents."
    )


def get_agent(agents: Mapping[str, Agent], name: str) -> Agent:
    """Return the agent of that name. Raises `AgentNotFound`."""
    try:
        return agents[name]
    except KeyError:
        raise AgentNotFound(name, agents) from None
