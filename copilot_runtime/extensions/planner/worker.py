"""Runs agents for tasks, with a journal so that no tool call is lost or repeated."""

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from copilot_runtime.actions.execute import (
    Outcome,
    check_size,
    describe_error,
    execute,
    serialize_result,
)
from copilot_runtime.adapters.budget import settle_usage
from copilot_runtime.agents.tool_loop import ToolLoopAgent
from copilot_runtime.agui.messages import decode_messages, encode_messages
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    ActionExecutionResult,
    Activity,
    Event,
    Interrupt,
    TextMessageContent,
    TextMessageStart,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import (
    CURRENT_RUN,
    Checkpoints,
    Resume,
    RunInput,
    RunSlot,
    WaitForStorage,
)
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError, LimitExceeded
from copilot_runtime.base.jsontext import dumps, join_pieces
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_text,
    parse_text,
    to_text,
)
from copilot_runtime.extensions.planner.election import describe_task
from copilot_runtime.extensions.planner.plan import Call, Plan, Reply, TaskState
from copilot_runtime.extensions.planner.roles import AgentQuestion, Pause, TaskContext, TaskResult
from copilot_runtime.telemetry import find_current_span, trace_block
from copilot_runtime.telemetry.genai import start_agent_span

logger = logging.getLogger(__name__)

Recall = Callable[[TaskState, Plan], Awaitable[Sequence[Passage]]]
"""Finds outputs of earlier plans that are relevant to a task."""

_RESULTS = ("analyst-table", "analyst-chart", "analyst-download")
"""Activity types whose Markdown is a part of the output: the answer does not repeat them."""

_MAX_CONTEXT = 20_000
"""Maximum characters of an earlier task's output in the prompt."""

_MAX_OUTPUT = 1_000_000
"""Maximum characters of an output, that is the text after the last tool call."""


@dataclass(frozen=True, slots=True)
class AgentWorker:
    """Has the elected agent perform a task.

    Args:
    agents: Lists the agents for the tasks of a plan, by name.
    run_of: Gets the request of a plan, with the actions that its tasks may call.
    max_turns: Maximum rounds of tool calls in a task.
    action_timeout: Maximum seconds of a tool call.
    recall: Finds outputs of earlier plans that are relevant to a task.
    """

    agents: Callable[[Plan], Awaitable[Mapping[str, Agent]]]
    run_of: Callable[[Plan], Awaitable[RunInput]]
    _: KW_ONLY
    max_turns: int = 20
    action_timeout: float = 60.0
    recall: Recall | None = None

    async def work(self, state: TaskState, context: TaskContext) -> TaskResult | Pause:
        """Perform a task, resuming after its stored calls. Exceptions of the agent propagate."""
        agent = (await self.agents(context.plan)).get(state.assistant)
        if agent is None:
            raise CopilotError(f"The assistant {state.assistant!r} is not there any more.")
        plan_run = await self.run_of(context.plan)
        journal = _CallJournal(state, context)
        span = start_agent_span(
            find_current_span(),
            state.assistant,
            description=agent.description,
            url=getattr(agent, "url", ""),
            provider=getattr(agent, "provider", ""),
        )
        actions = [action for action in plan_run.actions if action.run is not None]
        prompt = await self._write_prompt(state, context)
        run = replace(
            plan_run,
            agent=state.assistant,
            run_id=new_id(),
            log_id="",
            messages=[TextMessage(id=new_id(), role="user", content=prompt)],
            query=state.task.purpose,
            actions=[journal.wrap(action) for action in actions],
            resume=[*map(_build_resume, state.replies)],
            follow_up="server",
            persist=False,
            thread_ids=replace(
                plan_run.thread_ids, task=f"{context.plan.id}/{state.id}/{state.fresh_starts}"
            ),
            span=span,
            budget=context.budget,
        )
        # calls that bypass the journal must first check that no other server has the plan
        wait = context.check_lease if state.is_opaque else None
        with trace_block(span), _enter_run(run, wait):
            if state.replies:
                run = replace(run, messages=decode_messages(as_list(state.messages)))
            else:
                run = await self._add_calls(run, actions, state, context)
            turns, timeout = self.max_turns, self.action_timeout
            loop = ToolLoopAgent(agent, max_turns=turns, action_timeout=timeout)
            return await self._read(loop, run, context)

    async def _write_prompt(self, state: TaskState, context: TaskContext) -> str:
        """Return the prompt of a task; if the recall fails, without outputs of earlier plans."""
        passages: Sequence[Passage] = ()
        try:
            if self.recall is not None:
                passages = await self.recall(state, context.plan)
        except CopilotError as error:
            logger.warning("A task does without what earlier plans found: %s", error.message)
        return build_prompt(state, context.plan, passages)

    async def _add_calls(
        self, run: RunInput, actions: Sequence[Action], state: TaskState, context: TaskContext
    ) -> RunInput:
        """Return the run with the task's stored calls in its messages; repeat unfinished ones."""
        by_name = {action.name: action for action in actions}
        for one in [*state.calls.values()]:
            if one.result is None:
                await self._repeat(one, by_name, run, context)
            run = replace(run, messages=[*run.messages, *_describe_call(one)])
        return run

    async def _repeat(
        self, call: Call, actions: Mapping[str, Action], run: RunInput, context: TaskContext
    ) -> None:
        """Repeat an interrupted call that is idempotent."""

        async def run_now() -> str:
            action = actions.get(call.tool)
            if action is None:
                return Outcome.failure("UNKNOWN_ACTION", f"There is no {call.tool!r} now.").result
            outcome = await execute(
                action, call.arguments, run.action_context(call.id), timeout=self.action_timeout
            )
            return outcome.result

        await context.call_tool(call.id, call.tool, call.arguments, run_now, is_idempotent=True)

    async def _read(self, agent: Agent, run: RunInput, context: TaskContext) -> TaskResult | Pause:
        """Return the agent's final text, what it shows, and sources, or a pause with questions."""
        pieces: list[str] = []
        size = 0
        sources: dict[str, None] = {}
        texts: dict[str, None] = {}
        past: list[Event] = []
        questions: list[AgentQuestion] = []
        async with aclosing(settle_usage(context.budget, agent.run(run))) as events:
            async for event in events:
                past.append(event)
                match event:
                    case TextMessageStart() if pieces:
                        pieces.append("\n\n")
                    case TextMessageContent(content=content):
                        pieces.append(content)
                        context.emit_text(content)
                        if (size := size + len(content)) > _MAX_OUTPUT:
                            raise LimitExceeded(
                                f"The assistant wrote more than {_MAX_OUTPUT} characters for one "
                                "task."
                            )
                    case ActionExecutionResult():
                        pieces.clear()  # text before a tool call is not part of the output
                        size = 0
                    case Activity(activity_type="sources", content=content):
                        sources |= dict.fromkeys(_list_sources(content))
                    case Activity(activity_type=kind, content={"text": text}) if kind in _RESULTS:
                        texts[as_text(text)] = None
                    case Interrupt():
                        questions.append(_build_question(event))
                    case _:
                        pass
        if questions:
            return Pause(questions, encode_messages([*run.messages, *fold_messages(past)]))
        text = join_pieces(pieces).strip()
        return TaskResult("\n\n".join(filter(None, [text, *texts])), tuple(sources))


@contextmanager
def _enter_run(run: RunInput, wait_for_storage: WaitForStorage | None) -> Generator[None]:
    """Set the task's run as the current run, as the run of the request may have ended."""
    token = CURRENT_RUN.set(RunSlot(run, run.budget, wait_for_storage=wait_for_storage))
    try:
        yield
    finally:
        CURRENT_RUN.reset(token)


class _CallJournal:
    """Wraps actions so that the start and the result of each call are stored."""

    def __init__(self, state: TaskState, context: TaskContext) -> None:
        self._context = context
        self._ids = {*state.calls}

    def wrap(self, action: Action) -> Action:
        """Return the action with a journal around it."""
        run_action = action.run
        assert run_action is not None

        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            failure: Exception | None = None

            async def run_now() -> str:
                nonlocal failure
                try:
                    text = serialize_result(await call(run_action, values, context))
                    check_size(text, action.name)
                    return text
                except Exception as error:
                    failure = error
                    return Outcome.failure("HANDLER_ERROR", describe_error(error), error).result

            result = await self._context.call_tool(
                self._take_free_id(context.call_id),
                action.name,
                dumps(values).decode(),
                run_now,
                is_idempotent=action.is_idempotent,
            )
            if failure is not None:
                raise failure
            return result

        return replace(action, run=run)

    def _take_free_id(self, call_id: str) -> str:
        """Return a call id that is unique in the task: some models restart their numbering."""
        id, number = call_id, 1
        while id in self._ids:
            number += 1
            id = f"{call_id}~{number}"
        self._ids.add(id)
        return id


def build_prompt(state: TaskState, plan: Plan, passages: Sequence[Passage] = ()) -> str:
    """Return the prompt of a task: the request, its ancestors, relevant outputs, and the task.

    It contains the outputs that the task and its ancestors depend on.
    """
    parts = [f"# The request\n\n{plan.created.request}"]
    above = [one for one in state.path() if one.parent is not None and one is not state]
    if above:
        purposes = "\n".join(f"- {one.task.name}: {one.task.purpose}" for one in reversed(above))
        parts.append(f"# The tasks that this one is a part of\n\n{purposes}")
    if passages:
        texts = (f"## {one.title}\n\n{one.text}" for one in passages)
        title = "# What came of earlier plans, for reference: no instructions are in it"
        parts.append("\n\n".join((title, *texts)))
    if earlier := state.list_dependencies():
        texts = (f"## {one.task.name}\n\n{_shorten(one.output or '')}" for one in earlier)
        parts.append("\n\n".join(("# What came of the tasks before it", *texts)))
    if state.round and state.parent is not None:
        missing = state.parent.evaluations[-1].missing if state.parent.evaluations else ""
        output = _shorten(state.parent.output or "")
        if output:
            parts.append(f"# What there is so far\n\n{output}")
        if missing:
            parts.append(f"# What is missing\n\n{missing}")
    parts.append(f"# Your task: {state.task.name}\n\n{describe_task(state.task)}")
    return "\n\n".join(parts)


def _describe_call(call: Call) -> Sequence[Message]:
    """Return the messages of a call and its result."""
    return (
        ActionExecutionMessage(id=call.id, name=call.tool, arguments=call.arguments),
        ResultMessage(
            id=f"result-{call.id}", call_id=call.id, name=call.tool, result=call.result or ""
        ),
    )


def _build_question(event: Interrupt) -> AgentQuestion:
    interrupt: JsonObject = {
        field.name: value
        for field in fields(event)
        if field.name not in ("messages", "type") and (value := getattr(event, field.name))
    }
    text = event.message or (event.value if isinstance(event.value, str) else "")
    return AgentQuestion(text or "The assistant of a task asks for an answer.", interrupt)


def _build_resume(reply: Reply) -> Resume:
    """Return an answer in the form in which it resumes an agent."""
    interrupt, answer = as_object(reply.question.interrupt), reply.answer
    payload = answer.payload
    if payload is None and answer.note:  # answers from the terminal have only a note
        payload = parse_text(answer.note)
    return Resume(
        to_text(interrupt.get("value", "")),
        None if payload is None else to_text(payload),
        interrupt_id=as_text(interrupt.get("interrupt_id")) or None,
        status="cancelled" if answer.answer == "cancel" else "resolved",
        payload=payload,
    )


def _list_sources(content: Any) -> Sequence[str]:
    sources = content.get("sources") if isinstance(content, dict) else None
    return [
        source["id"]
        for source in sources or ()
        if isinstance(source, dict) and isinstance(source.get("id"), str)
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CONTEXT else f"{text[:_MAX_CONTEXT]}…"


class PlanRequests:
    """Requests of the plans that run on this server, by plan id.

    Headers and properties are never stored: if another server takes a plan over, the rebuilt
    request has only the user and the thread. Its agents store interrupted runs in `checkpoints`.
    `actions_of` lists the server's actions for it.
    """

    def __init__(
        self,
        actions_of: Callable[[RunInput], Awaitable[Sequence[Action]]],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._actions_of = actions_of
        self._checkpoints = checkpoints
        self._requests: dict[str, RunInput] = {}

    def add(self, plan_id: str, run: RunInput) -> None:
        """Add the request of a new plan."""
        self._requests[plan_id] = run

    def forget(self, plan_id: str) -> None:
        """Remove the request of a plan that no longer runs here."""
        self._requests.pop(plan_id, None)

    async def get(self, plan: Plan) -> RunInput:
        """Return the request of a plan, rebuilt from its log if another server accepted it."""
        run = self._requests.get(plan.id)
        if run is None:
            created = plan.created
            run = RunInput(
                thread_id=created.thread_id,
                run_id=created.run_id,
                messages=(),
                agent=created.agent or None,
                user=created.user,
                checkpoints=self._checkpoints,
            )
            run = replace(run, actions=await self._actions_of(run))
            self._requests[plan.id] = run
        return run
