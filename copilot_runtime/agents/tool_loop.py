"""Runs the server actions that an agent calls, and hands off to other agents."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.adapters.stop_reasons import is_cut_off
from copilot_runtime.adapters.tool_calls import is_readable
from copilot_runtime.agents.turn import Handoff, Turn
from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.api.action import Action, new_action
from copilot_runtime.api.agent import Agent, SupportsRun
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Events,
    Interrupt,
    MessagesSnapshot,
    Raw,
    RunFinished,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    drop_empty_results,
    is_placeholder_result,
    is_real_result,
    new_id,
)
from copilot_runtime.api.run_input import CURRENT_RUN, AgentInput, RunInput, wait_for_storage
from copilot_runtime.api.transcript import fold_conversation, fold_messages
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.event_order.message_ids import rename_used_ids
from copilot_runtime.telemetry.genai import start_agent_span, start_tool_span


class ToolLoopAgent(Agent):
    """Runs an agent, then the server actions it has called, and the agent again with the results.

    A remote agent calls an action and ends its run, as for actions of the browser. Calls for which
    the agent sends a result are its own. The agent runs at most `max_turns` times; an action may
    take `action_timeout` seconds.
    """

    def __init__(self, agent: SupportsRun, *, max_turns: int, action_timeout: float) -> None:
        self.agent = agent
        self.executes_actions = getattr(agent, "executes_actions", False)
        self.max_turns = max_turns
        self.action_timeout = action_timeout

    async def run(self, run: RunInput) -> Events:
        """Yield the agent's events and the results of its calls.

        On cancellation or early close, the agent is closed and the actions are cancelled. Raises
        `LimitExceeded` after `max_turns`, and the errors of the agent.
        """
        server = [action for action in run.actions if not action.in_browser]
        for number in range(self.max_turns):
            turn = Turn(run, server, self.action_timeout)
            stream = self.agent.run(run)
            if number:  # the first turn has the ids that `verify_events` sees
                stream = rename_used_ids(stream, run.messages)
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, ActionExecutionEnd) and _is_broken(turn, event.call_id):
                        continue  # the call is refused at the end, unless the agent answers it
                    turn.events.append(event)
                    if not isinstance(event, RunFinished):
                        yield event
            is_blocked, ends = _start_calls(turn)
            for end in ends:
                yield end
            async with aclosing(finish_turn(turn, self.max_turns)) as events:
                async for event in events:
                    yield event
            turn.check_refusals(run.messages)
            if turn.is_done or is_blocked:
                for event in turn.events:
                    if isinstance(event, RunFinished):
                        yield event
                return
            run = _continue_run(run, turn.events)
        raise LimitExceeded(
            f"The agent {run.agent!r} called actions {self.max_turns} times in a row, the most by "
            "`max_turns`.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )


async def finish_turn(turn: Turn, max_turns: int) -> Events:
    """Yield the results of the running calls, then the events of the agents handed off to."""
    try:
        while turn.tasks:
            for result in turn.build_results(await turn.wait_next()):
                yield result
    finally:
        turn.cancel()
    async with aclosing(hand_off(turn.run, turn.handoffs, max_turns, turn.timeout)) as events:
        async for event in events:
            yield event


async def hand_off(
    run: RunInput,
    handoffs: Sequence[Handoff],
    max_turns: int,
    timeout: float,
) -> Events:
    """Run the agents that a run hands off to; these cannot hand off themselves.

    The ids of their interrupts get the prefix `<name>/`, which `find_handoff_resumes` evaluates.
    """
    actions = [one for one in run.actions if one.agent is None]
    for action, call_id, resume in handoffs:
        assert action.agent is not None
        url, provider = getattr(action.agent, "url", ""), getattr(action.agent, "provider", "")
        call = run.span  # an agent that resumes after an interrupt has no call
        if not resume:
            call = start_tool_span(
                run.span,
                action.name,
                call_id=call_id,
                description=action.description,
                location="agent",
            )
        span = start_agent_span(
            call, action.name, description=action.description, url=url, provider=provider
        )
        sub_run = replace(
            run,
            agent=action.name,
            actions=actions,
            run_id=new_id(),
            node=None,
            resume=resume,
            span=span,
        )
        agent = ToolLoopAgent(action.agent, max_turns=max_turns, action_timeout=timeout)
        if (slot := CURRENT_RUN.get(None)) is not None:  # the agent that hands off has ended
            slot.run = sub_run
        try:
            await wait_for_storage()  # as before any action: the agent may have side effects
            stream = track_v1_state(agent.run(sub_run), sub_run, is_handoff=True)
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, Interrupt):
                        yield replace(event, interrupt_id=f"{action.name}/{event.interrupt_id}")
                    elif not isinstance(event, RunFinished):  # only its part has finished
                        yield event
        except Exception as error:
            for one in (span, call):
                if one is not run.span:
                    one.fail(error)
            raise
        finally:
            span.end()
            if call is not run.span:
                call.end()


def find_handoff_resumes(run: RunInput) -> list[Handoff]:
    """Return the agents whose interrupts a run resumes, with the answers and original ids.

    A CopilotKit v1 client sends answers to the agent itself, all others to the chat.
    """
    resumes: list[Handoff] = []
    for action in run.actions:
        prefix = f"{action.name}/"
        resume = [
            replace(answer, interrupt_id=answer.interrupt_id.removeprefix(prefix))
            for answer in run.resume
            if answer.interrupt_id is not None and answer.interrupt_id.startswith(prefix)
        ]
        if action.agent is not None and resume:
            resumes.append(Handoff(action, resume=resume))
    return resumes


def build_handoff_actions(agents: Mapping[str, Agent], run: RunInput) -> list[Action]:
    """Return an action for each agent that a run may hand off to: all except its own."""
    return [
        new_action(
            name=name,
            description=agent.description or f"Hands over to the agent {name}.",
            parameters={"type": "object", "properties": {}, "required": []},
            agent=agent,
        )
        for name, agent in agents.items()
        if name != run.agent
    ]


def _start_calls(turn: Turn) -> tuple[bool, Sequence[Event]]:
    """Start the calls without a result; refuse those that were cut off.

    Return `True` if the agent must wait for a person or the browser, and the ends that are missing
    after the agent's own results.
    """
    has_question = any(isinstance(event, Interrupt) for event in turn.events)
    is_blocked = has_question
    calls, open_ids = _find_pending_calls(turn.run.messages, turn.events)
    is_cut = ended_by_length(turn.events)
    for call in calls:
        is_open = call.id in open_ids
        if call.arguments.strip():  # clients of AG-UI refuse what they cannot parse themselves
            is_missing = (is_cut or turn.run.is_v1) and not is_readable(call.arguments)
        else:
            is_missing = is_open or (is_cut and call is calls[-1])
        if (
            is_missing
            and not has_question
            and (call.name in turn.server or call.name in turn.browser)
        ):
            turn.refuse(call.id, call.name, is_open=is_open)
        elif is_open:
            pass  # the agent forgot its end
        elif call.name in turn.server:
            turn.start(call.id, call.name, call.arguments)
        else:
            is_blocked = True
    answered = open_ids - {call.id for call in calls}
    return is_blocked, [ActionExecutionEnd(call_id=id) for id in answered]


def _is_broken(turn: Turn, call_id: str) -> bool:
    """Return whether a call of a v1 browser, which would run it, ends without whole arguments."""
    if not turn.run.is_v1:
        return False
    pieces: list[str] = []
    for event in reversed(turn.events):
        match event:
            case ActionExecutionArgs(call_id=id, delta=delta) if id == call_id:
                pieces.append(delta)
            case ActionExecutionStart(call_id=id, name=name) if id == call_id:
                return name in turn.browser and not is_readable("".join(reversed(pieces)))
            case ActionExecutionResult(call_id=id) if id == call_id:
                return False
            case _:
                pass
    return False


def ended_by_length(events: Sequence[Event]) -> bool:
    """Return whether the agent's last request to its model ended by a limit, as far as it says so.

    Agents of LangGraph say so in the events of LangChain, which they pass on as `RAW`.
    """
    for event in reversed(events):
        match event:
            case Usage(stop_reason=reason):
                return reason == "length"
            case Raw(event={"event": "on_chat_model_end", "data": {"output": output}}):
                return is_cut_off(output)
            case _:
                pass
    return False


def _find_pending_calls(
    earlier: Iterable[Message], events: Sequence[Event]
) -> tuple[Sequence[ActionExecutionMessage], set[str]]:
    """Return the calls without a result, and the ids of those without an end.

    They include calls that are only in a snapshot.
    """
    messages = fold_messages(events)
    streamed = {call.id: call for call in messages if isinstance(call, ActionExecutionMessage)}
    ids = streamed.keys() | {message.id for message in earlier}
    incomplete = set(streamed)
    pending: dict[str, ActionExecutionMessage] = {}
    for event in events:
        match event:
            case ActionExecutionStart(call_id=id):
                pending[id] = streamed[id]
            case ActionExecutionEnd(call_id=id):
                incomplete.discard(id)
            case ActionExecutionResult(call_id=id, result=text) if not is_placeholder_result(text):
                pending.pop(id, None)
            case MessagesSnapshot(messages=messages):
                for message in messages:
                    if isinstance(message, ActionExecutionMessage) and message.id not in ids:
                        pending[message.id] = message
                    elif is_real_result(message):
                        pending.pop(message.call_id, None)
            case _:
                pass
    return [*pending.values()], incomplete


def _continue_run(run: RunInput, events: Sequence[Event]) -> RunInput:
    """Return the next run: with the state and the messages of this one."""
    agents = dict(run.agents)
    for event in events:
        if isinstance(event, AgentState) and run.agent is not None:
            agents[run.agent] = replace(agents.get(run.agent, AgentInput()), state=event.state)
    messages = [*run.messages, *fold_messages(events)]
    if any(isinstance(event, MessagesSnapshot) for event in events):  # it has the earlier ones
        messages = fold_conversation(events)
    messages = drop_empty_results(messages)
    return replace(run, messages=messages, agents=agents, run_id=new_id(), resume=())
