"""Give an agent what the application can do: its actions run here, and other agents take over."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.agents.turn import Call, Turn
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
from copilot_runtime.interfaces import Action, Agent, AgentInput, Events, Resume, RunInput
from copilot_runtime.messages import ActionExecutionMessage, Message, ResultMessage, new_id
from copilot_runtime.transcript import messages_of, said_in

MAX_TOOLS = 128
"""What providers take."""

logger = logging.getLogger(__name__)


class ToolLoopAgent:
    """Runs what an agent calls of this server, and asks it again with the results.

    An agent elsewhere calls an action and ends its run, as it does for actions of the browser.
    What it has an own result for is its own. It is asked at most `max_turns` times; an action may
    take `action_timeout` seconds.
    """

    def __init__(self, agent: Agent, *, max_turns: int, action_timeout: float) -> None:
        self.agent = agent
        self.max_turns = max_turns
        self.action_timeout = action_timeout

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's answers and what came of its calls. Raises `LimitExceeded`."""
        server = [action for action in run.actions if not action.in_browser]
        for _ in range(self.max_turns):
            said = _Said(run, server)
            async with aclosing(self.agent.run(run)) as events:
                async for event in events:
                    said.watch(event)
                    if not isinstance(event, RunFinished):
                        yield event
            turn = Turn(run, server, self.action_timeout)
            try:
                for call_id, call in said.unanswered():
                    turn.begin(call_id, call)
                while turn.waiting:
                    for result in turn.results_of(await turn.next()):
                        said.events.append(result)
                        yield result
            finally:
                turn.cancel()
            for action in turn.taking_over:
                handing = hand_off(run, action, self.max_turns, self.action_timeout)
                async with aclosing(handing) as events:
                    async for event in events:
                        yield event
            if turn.done or said.waits:
                if said.finished is not None:
                    yield said.finished
                return
            run = _again(run, said)
        raise LimitExceeded(
            f"The agent {run.agent!r} called actions {self.max_turns} times in a row.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )


async def hand_off(
    run: RunInput,
    action: Action,
    max_turns: int,
    timeout: float,
    resume: Sequence[Resume] = (),
) -> Events:
    """Run the agent of an action in the middle of a run; it cannot hand off itself.

    The ids of its interrupts get the prefix `<name>/`, by which `find_handoff_resumes` finds it.
    """
    assert action.agent is not None
    actions = [one for one in run.actions if one.agent is None]
    its_own = replace(
        run, agent=action.name, actions=actions, run_id=new_id(), node=None, resume=resume
    )
    agent = ToolLoopAgent(action.agent, max_turns=max_turns, action_timeout=timeout)
    async with aclosing(track_v1_state(agent.run(its_own), its_own, is_handoff=True)) as events:
        async for event in events:
            if isinstance(event, Interrupt):
                yield replace(event, interrupt_id=f"{action.name}/{event.interrupt_id}")
            elif not isinstance(event, RunFinished):  # what is finished is its part only
                yield event


def find_handoff_resumes(run: RunInput) -> list[tuple[Action, list[Resume]]]:
    """Return the agents that asked what a run answers, and the answers, with the agents' own ids.

    A client of CopilotKit v1 names the agent it answers, all others answer the chat.
    """
    found: list[tuple[Action, list[Resume]]] = []
    for action in run.actions:
        its_own = f"{action.name}/"
        resume = [
            replace(answer, interrupt_id=answer.interrupt_id.removeprefix(its_own))
            for answer in run.resume
            if answer.interrupt_id is not None and answer.interrupt_id.startswith(its_own)
        ]
        if action.agent is not None and resume:
            found.append((action, resume))
    return found


def build_handoff_actions(
    agents: Mapping[str, Agent], run: RunInput, others: Sequence[Action] = ()
) -> list[Action]:
    """Return the agents that a run may hand over to: all but the one that has it.

    Where there are too many `others` already, the first agents count.
    """
    room = max(0, MAX_TOOLS - len(others) - len(run.actions))
    found = [
        Action(
            name=name,
            description=getattr(agent, "description", "") or f"Hands over to the agent {name}.",
            parameters={"type": "object", "properties": {}, "required": []},
            agent=agent,
        )
        for name, agent in agents.items()
        if name != run.agent
    ]
    if len(found) > room:
        logger.warning("There are %d agents to hand over to; %d count.", len(found), room)
    return found[:room]


class _Said:
    """What an agent has said in one of its runs."""

    def __init__(self, run: RunInput, server: Sequence[Action]) -> None:
        self.events: list[Event] = []
        self.finished: RunFinished | None = None
        self.waits = False
        """Whether it cannot go on before a person or the browser has acted."""
        self.state: AgentState | None = None
        self.snapshot = False
        """Whether it has repeated the whole conversation."""
        self._server = {action.name for action in server}
        self._calls: dict[str, Call] = {}
        self._whole: set[str] = set()
        self._known = {message.id for message in run.messages}

    def watch(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case TextMessageContent():
                pass  # nearly always
            case ActionExecutionStart(call_id=id, name=name):
                self._known.add(id)
                self._calls[id] = Call(name)
            case ActionExecutionArgs(call_id=id, delta=delta) if id in self._calls:
                self._calls[id].arguments.append(delta)
            case ActionExecutionEnd(call_id=id):
                self._whole.add(id)
            case ActionExecutionResult(call_id=id):
                self._calls.pop(id, None)
            case MessagesSnapshot(messages=messages):
                self._look_at(messages)
            case AgentState():
                self.state = event
            case Interrupt():
                self.waits = True
            case RunFinished():
                self.finished = event
            case _:
                pass

    def _look_at(self, messages: Sequence[Message]) -> None:
        """Find calls that were never streamed, and results that were not."""
        self.snapshot = True
        for message in messages:
            match message:
                case ActionExecutionMessage(id=id) if id not in self._known:
                    self._known.add(id)
                    self._whole.add(id)
                    self._calls[id] = Call(message.name, [message.arguments])
                case ResultMessage(call_id=id):
                    self._calls.pop(id, None)
                case _:
                    pass

    def unanswered(self) -> list[tuple[str, Call]]:
        """Return the calls of this server's actions; any other is not ours to answer."""
        left = [(id, call) for id, call in self._calls.items() if id in self._whole]
        ours = [(id, call) for id, call in left if call.name in self._server]
        self.waits = self.waits or len(ours) < len(left)
        return ours


def _again(run: RunInput, said: _Said) -> RunInput:
    """Return the run that goes on from what was said."""
    agents = dict(run.agents)
    if said.state is not None and run.agent is not None:
        known = agents.get(run.agent, AgentInput())
        agents[run.agent] = replace(known, state=said.state.state)
    messages: Sequence[Message] = [*run.messages, *messages_of(said.events)]
    if said.snapshot:
        messages = said_in(said.events)
    return replace(run, messages=messages, agents=agents, run_id=new_id(), resume=())
