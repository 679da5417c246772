"""Runs the server actions that an agent calls, and hands off to other agents."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.agents.turn import ToolCallBuffer, Turn
from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.errors import LimitExceeded
from copilot_runtime.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunFinished,
    TextMessageContent,
)
from copilot_runtime.interfaces import (
    Action,
    Agent,
    AgentInput,
    Events,
    Resume,
    RunInput,
    SupportsRun,
)
from copilot_runtime.messages import ActionExecutionMessage, Message, ResultMessage, new_id
from copilot_runtime.transcript import fold_conversation, fold_messages

MAX_TOOLS = 128
"""Largest number of tools that providers accept."""

logger = logging.getLogger(__name__)


class ToolLoopAgent(Agent):
    """Runs an agent, then the server actions it has called, and the agent again with the results.

    An agent elsewhere calls an action and ends its run, as for actions of the browser. Calls that
    it sends a result for are its own. The agent runs at most `max_turns` times; an action may take
    `action_timeout` seconds.
    """

    def __init__(self, agent: SupportsRun, *, max_turns: int, action_timeout: float) -> None:
        self.agent = agent
        self.max_turns = max_turns
        self.action_timeout = action_timeout

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's events and the results of its calls.

        Cancelled, or closed early, the agent is closed and the actions are cancelled. Raises
        `LimitExceeded` after `max_turns`, and what the agent raises.
        """
        server = [action for action in run.actions if not action.in_browser]
        for _ in range(self.max_turns):
            record = _RunRecord(run, server)
            async with aclosing(self.agent.run(run)) as events:
                async for event in events:
                    record.feed(event)
                    if not isinstance(event, RunFinished):
                        yield event
            turn = Turn(run, server, self.action_timeout)
            try:
                for call_id, call in record.find_pending_calls():
                    turn.start(call_id, call)
                while turn.tasks:
                    for result in turn.build_results(await turn.wait_next()):
                        record.events.append(result)
                        yield result
            finally:
                turn.cancel()
            handoffs = [(action, ()) for action in turn.handoffs]
            agents = hand_off(run, handoffs, self.max_turns, self.action_timeout)
            async with aclosing(agents) as events:
                async for event in events:
                    yield event
            if turn.is_done or record.is_blocked:
                if record.finished is not None:
                    yield record.finished
                return
            run = _continue_run(run, record)
        raise LimitExceeded(
            f"The agent {run.agent!r} called actions {self.max_turns} times in a row.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )


async def hand_off(
    run: RunInput,
    handoffs: Sequence[tuple[Action, Sequence[Resume]]],
    max_turns: int,
    timeout: float,
) -> Events:
    """Run the agents of actions in the middle of a run; they cannot hand off themselves.

    The ids of their interrupts get the prefix `<name>/`, by which `find_handoff_resumes` finds
    them.
    """
    actions = [one for one in run.actions if one.agent is None]
    for action, resume in handoffs:
        assert action.agent is not None
        sub_run = replace(
            run, agent=action.name, actions=actions, run_id=new_id(), node=None, resume=resume
        )
        agent = ToolLoopAgent(action.agent, max_turns=max_turns, action_timeout=timeout)
        async with aclosing(track_v1_state(agent.run(sub_run), sub_run, is_handoff=True)) as events:
            async for event in events:
                if isinstance(event, Interrupt):
                    yield replace(event, interrupt_id=f"{action.name}/{event.interrupt_id}")
                elif not isinstance(event, RunFinished):  # only its part has finished
                    yield event


def find_handoff_resumes(run: RunInput) -> list[tuple[Action, list[Resume]]]:
    """Return the agents whose interrupts a run answers, with the answers and their original ids.

    A client of CopilotKit v1 answers the agent itself, all others answer the chat.
    """
    resumes: list[tuple[Action, list[Resume]]] = []
    for action in run.actions:
        prefix = f"{action.name}/"
        resume = [
            replace(answer, interrupt_id=answer.interrupt_id.removeprefix(prefix))
            for answer in run.resume
            if answer.interrupt_id is not None and answer.interrupt_id.startswith(prefix)
        ]
        if action.agent is not None and resume:
            resumes.append((action, resume))
    return resumes


def build_handoff_actions(
    agents: Mapping[str, Agent], run: RunInput, others: Sequence[Action] = ()
) -> list[Action]:
    """Return an action for each agent that a run may hand off to: all but its own.

    Together with `others` and the actions of the run, there are at most `MAX_TOOLS`.
    """
    room = max(0, MAX_TOOLS - len(others) - len(run.actions))
    handoffs = [
        Action(
            name=name,
            description=agent.description or f"Hands over to the agent {name}.",
            parameters={"type": "object", "properties": {}, "required": []},
            agent=agent,
        )
        for name, agent in agents.items()
        if name != run.agent
    ]
    if len(handoffs) > room:
        logger.warning("There are %d agents to hand over to; %d count.", len(handoffs), room)
    return handoffs[:room]


class _RunRecord:
    """The events of one run of an agent, and which of its calls have no result."""

    def __init__(self, run: RunInput, server: Sequence[Action]) -> None:
        self.events: list[Event] = []
        self.finished: RunFinished | None = None
        self.is_blocked = False
        """Whether the agent cannot go on before a person or the browser has acted."""
        self.state: AgentState | None = None
        self.has_snapshot = False
        """Whether the agent has repeated the whole conversation."""
        self._server = {action.name for action in server}
        self._calls: dict[str, ToolCallBuffer] = {}
        self._complete: set[str] = set()
        self._ids = {message.id for message in run.messages}

    def feed(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case TextMessageContent():
                pass  # nearly always
            case ActionExecutionStart(call_id=id, name=name):
                self._ids.add(id)
                self._calls[id] = ToolCallBuffer(name)
            case ActionExecutionArgs(call_id=id, delta=delta) if id in self._calls:
                self._calls[id].arguments.append(delta)
            case ActionExecutionEnd(call_id=id):
                self._complete.add(id)
            case ActionExecutionResult(call_id=id):
                self._calls.pop(id, None)
            case MessagesSnapshot(messages=messages):
                self._add_messages(messages)
            case AgentState():
                self.state = event
            case Interrupt():
                self.is_blocked = True
            case RunFinished():
                self.finished = event
            case _:
                pass

    def _add_messages(self, messages: Sequence[Message]) -> None:
        """Add calls and results that were not streamed."""
        self.has_snapshot = True
        for message in messages:
            match message:
                case ActionExecutionMessage(id=id) if id not in self._ids:
                    self._ids.add(id)
                    self._complete.add(id)
                    self._calls[id] = ToolCallBuffer(message.name, [message.arguments])
                case ResultMessage(call_id=id):
                    self._calls.pop(id, None)
                case _:
                    pass

    def find_pending_calls(self) -> list[tuple[str, ToolCallBuffer]]:
        """Return the calls of this server's actions without a result; any other blocks the run."""
        pending = [(id, call) for id, call in self._calls.items() if id in self._complete]
        ours = [(id, call) for id, call in pending if call.name in self._server]
        self.is_blocked = self.is_blocked or len(ours) < len(pending)
        return ours


def _continue_run(run: RunInput, record: _RunRecord) -> RunInput:
    """Return the next run: with the state and the messages of this one."""
    agents = dict(run.agents)
    if record.state is not None and run.agent is not None:
        agent = agents.get(run.agent, AgentInput())
        agents[run.agent] = replace(agent, state=record.state.state)
    messages: Sequence[Message] = [*run.messages, *fold_messages(record.events)]
    if record.has_snapshot:
        messages = fold_conversation(record.events)
    return replace(run, messages=messages, agents=agents, run_id=new_id(), resume=())
