"""The agent that answers questions about data: guards, context, a model with tools, and memory."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from copilot_runtime.actions.execute import execute
from copilot_runtime.agents.instructions import InstructedAgent
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import APPROVAL_CAPABILITIES
from copilot_runtime.api.events import (
    ActionExecutionResult,
    Event,
    Events,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage, new_id
from copilot_runtime.api.run_input import CURRENT_RUN, Parameters, RunInput
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.analyst.analyst import Analyst
from copilot_runtime.extensions.analyst.guards import AnswerTexts
from copilot_runtime.extensions.analyst.loops import Loop, LoopRequest, TurnAdapter, find_loop
from copilot_runtime.extensions.analyst.prompt.prepare import PreparedRequest
from copilot_runtime.extensions.analyst.question import (
    MAX_QUESTION,
    Question,
    RequestBlocked,
    guard_question,
    read_question,
)
from copilot_runtime.extensions.analyst.results import Findings
from copilot_runtime.extensions.analyst.session import Session, ThoughtType
from copilot_runtime.extensions.analyst.spans import (
    describe_request,
    record_output_check,
    start_prepare_span,
)
from copilot_runtime.extensions.analyst.tools.call import build_actions
from copilot_runtime.extensions.analyst.view import View, find_clarification
from copilot_runtime.extensions.analyst.work import (
    Approval,
    Signature,
    Work,
    build_interrupt,
    merge_events,
    read_approvals,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import NO_SPAN, Span, work_under

_ERROR = "The question could not be answered."
_PREVIEW = 100
"""Number of characters of the question that the first thought repeats."""


class AnalystAgent(InstructedAgent):
    """Answers questions about the data of an `Analyst`.

    Args:
        analyst: The data and its access rules.
        adapter: The model, for our own loop.
        model: The model for a framework: a name or an object; `None` uses the setting.
        description: What the agent is for.
        load_secret: Returns the secret shared by all servers; empty if they share a folder.
    """

    has_data = True
    capabilities = APPROVAL_CAPABILITIES

    def __init__(
        self,
        analyst: Analyst,
        adapter: Adapter,
        *,
        model: object = None,
        description: str = "Answers questions about data with numbers, tables and charts.",
        load_secret: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self.analyst = analyst
        self.adapter = adapter
        self.model = model or analyst.settings.model or None
        self.description = description
        self.signature = Signature(Path(analyst.settings.store))
        self._load_secret = load_secret
        self.loop: Loop = find_loop(analyst.settings)
        self.instructions: str = analyst.settings.instructions  # pyright: ignore[reportIncompatibleVariableOverride]  # no function of a run

    def check(self, run: RunInput) -> None:
        """Raise the errors that do not depend on a model's answer."""
        framework = self.analyst.settings.framework
        if framework == "own":
            self.adapter.check(run)
        elif run.overrides is not None and run.overrides.parameters != Parameters():
            raise Misuse(f"The model of the analyst is that of {framework}, and not changed here.")

    def run(self, run: RunInput) -> Events:
        """Yield thoughts, calls, tables and charts as they come, and the answer.

        A blocked question gets a polite text. Stopping the run interrupts its queries. A call that
        needs an approval ends the run with an `Interrupt`; the resumed run continues the answer.
        """
        return self.answer(run)

    async def answer(
        self, run: RunInput, *, request_span: Span = NO_SPAN, has_thought_events: bool = False
    ) -> Events:
        """Yield the events of a run.

        Additional spans are children of `request_span`, if there is one. With `has_thought_events`,
        each thought is an event.
        """
        if (slot := CURRENT_RUN.get(None)) is not None:
            slot.traces_tools = True  # each tool has its own span
        # first: an answer that is rejected before any event leaves its question open
        approvals = read_approvals(run, self.signature)
        one = _Answer(self, run, approvals, request_span, has_thought_events=has_thought_events)
        try:
            async with aclosing(one.stream()) as events:
                async for event in events:
                    yield event
        except (asyncio.CancelledError, GeneratorExit):
            slot = CURRENT_RUN.get(None)
            if slot is not None and slot.is_stopped:
                slot.closing_events = one.view.finish("stopped")
            raise
        except Exception as error:
            text = error.public if isinstance(error, CopilotError) else _ERROR
            one.work.thoughts.emit("error", text)
            for event in [*one.work.collect(), *one.view.finish("failed")]:
                yield event
            raise
        finally:
            one.work.thoughts.close()

    async def open(self) -> None:
        """Load the data in the background; questions that arrive earlier wait for it."""
        if self._load_secret is not None:
            folder = Path(self.analyst.settings.store)
            self.signature = Signature(folder, await self._load_secret())
        self.analyst.start()

    def find_failing_checks(self) -> Sequence[str]:
        return self.analyst.find_failing_checks()

    async def aclose(self) -> None:
        """Stop all queries, and close the data."""
        await self.analyst.aclose()


class _Answer:
    """A run of the analyst."""

    def __init__(
        self,
        agent: AnalystAgent,
        run: RunInput,
        approvals: Sequence[Approval],
        request_span: Span,
        *,
        has_thought_events: bool,
    ) -> None:
        self.agent = agent
        self.approvals = approvals
        self.analyst = agent.analyst
        self.run = run
        self.parent = request_span if request_span.is_recording else run.span
        self.view = View(run, has_thought_events=has_thought_events)
        self.work = Work(run, self.view)
        self.texts = AnswerTexts()

    async def stream(self) -> Events:
        """Yield all events of the run."""
        question = read_question(self.run)
        span = start_prepare_span(self.parent)
        try:
            prepared = await self._prepare(question, span)
            for event in self.work.collect(as_text=True):
                yield event
            if isinstance(prepared, RequestBlocked):
                for event in [*_say(prepared.response), *self.view.finish("blocked")]:
                    yield event
                return
            with work_under(span):
                opening = asyncio.ensure_future(self._open_session(question, prepared))
            async with aclosing(self._wait_with_thoughts(opening)) as events:
                async for event in events:
                    yield event
            session, instructions = opening.result()
            describe_request(
                span,
                classification=prepared.classification,
                confidence=prepared.confidence,
                skills=prepared.selected_skill_names,
                dataset=session.dataset,
            )
        except Exception as error:
            span.fail(error)
            raise
        finally:
            span.end()
        async with aclosing(self._work_and_conclude(question, prepared, session, instructions)) as (
            events
        ):
            async for event in events:
                yield event

    async def _prepare(self, question: Question, span: Span) -> PreparedRequest | RequestBlocked:
        """Guard and classify a question, and collect its prompt context. Runs no query."""
        thoughts = self.work.thoughts
        goes_on = bool(self.run.resume)
        try:
            message = question.message
            if not goes_on:
                guarded = guard_question(message)
                message = guarded.message
                if guarded.notice:
                    thoughts.emit(
                        "reflection",
                        f"The question is longer than {MAX_QUESTION:,} characters: only its "
                        "beginning is answered.",
                    )
        except RequestBlocked as blocked:
            thoughts.emit("decision", f"Blocked the request: {blocked.kind}.")
            span.set_attributes({semconv.REQUEST_BLOCKED: blocked.kind})
            return blocked
        prepared = await self.analyst.prepare(question, message)
        if not goes_on:
            if prepared.selected_skill_names:
                names = ", ".join(prepared.selected_skill_names)
                thoughts.emit("planning", f"Applying skills: {names}")
            preview = prepared.message[:_PREVIEW]
            more = "…" if len(prepared.message) > _PREVIEW else ""
            thoughts.emit("reasoning", f"Analyzing: {preview}{more}")
        return prepared

    async def _open_session(
        self, question: Question, prepared: PreparedRequest
    ) -> tuple[Session, str]:
        scope = await self.analyst.build_scope(self.run.caller, question.agent_name)
        session = await self.analyst.open_session(
            scope,
            question=question,
            message=prepared.message,
            thoughts=self.work.thoughts,
            span=self.run.span,
        )
        instructions = self.agent.instructions
        return session, await self.analyst.write_instructions(
            session, question, prepared, instructions
        )

    async def _wait_with_thoughts(self, task: "asyncio.Future[tuple[Session, str]]") -> Events:
        task.add_done_callback(lambda _: self.work.bell.ring())
        try:
            while not task.done():
                await self.work.bell.wait()
                for event in self.work.collect(as_text=True):
                    yield event
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _work_and_conclude(
        self, question: Question, prepared: PreparedRequest, session: Session, instructions: str
    ) -> Events:
        work = self.work
        actions = work.watch_actions(build_actions(session, on_result=work.record_result))
        names = [action.name for action in actions]
        inner = self._run_loop(question, prepared, session, actions, instructions)
        watched = work.watch_events(inner, names)
        stream = merge_events(watched, work.bell, work.collect, lambda: work.must_ask)
        async with aclosing(self.texts.guard(stream)) as events:
            async for event in events:
                yield event
        record_output_check(self.parent, self.texts.start_time, self.texts.redactions)
        for event in self._conclude(prepared, session):
            yield event
        self.analyst.remember(session, self.parent)

    async def _run_loop(
        self,
        question: Question,
        prepared: PreparedRequest,
        session: Session,
        actions: Sequence[Action],
        instructions: str,
    ) -> Events:
        """Yield the results of approved calls, then the events of the model loop."""
        messages = self._build_messages(question, prepared)
        if self.run.resume:
            for approval in self.approvals:
                result = await self._carry_out(approval, session, actions)
                yield result
                messages.append(
                    ResultMessage(
                        id=f"result-{result.call_id}",
                        call_id=result.call_id,
                        name=result.name,
                        result=result.result,
                    )
                )
        own = {action.name for action in actions}
        browser = [one for one in self.run.actions if one.in_browser and one.name not in own]
        settings = self.analyst.settings
        request = LoopRequest(
            run=replace(
                self.run,
                messages=messages,
                actions=[*actions, *browser],
                resume=(),
                context=[*self.run.context],
            ),
            instructions=instructions,
            adapter=TurnAdapter(self.agent.adapter, self.work.record_turn),
            model=self.agent.model,
            max_turns=settings.max_turns,
            timeout=self.analyst.tool_timeout,
        )
        async with aclosing(self.agent.loop(request)) as events:
            async for event in events:
                yield event

    async def _carry_out(
        self, approval: Approval, session: Session, actions: Sequence[Action]
    ) -> ActionExecutionResult:
        """Run an approved call, or record that the reviewer rejected it."""
        if approval.is_approved:
            session.approve(approval.tool, approval.arguments)
        else:
            session.decline(approval.tool, approval.arguments, approval.note)
        action = next((one for one in actions if one.name == approval.tool), None)
        if action is None:
            result = f'{{"error": "There is no tool {approval.tool[:100]!r}."}}'
        else:
            outcome = await execute(
                action,
                dumps(approval.arguments).decode(),
                self.run.action_context(approval.call_id),
                timeout=self.analyst.tool_timeout,
            )
            result = outcome.result
        return ActionExecutionResult(call_id=approval.call_id, name=approval.tool, result=result)

    def _build_messages(self, question: Question, prepared: PreparedRequest) -> list[Message]:
        """Return the part of the conversation that the model reads."""
        messages: list[Message] = [
            TextMessage(id=new_id(), role=entry.role, content=entry.content)
            for entry in prepared.conversation_history
        ]
        if prepared.message:
            id = question.message_id or new_id()
            messages.append(TextMessage(id=id, role="user", content=prepared.message))
        return [*messages, *question.rest]

    def _conclude(self, prepared: PreparedRequest, session: Session) -> Sequence[Event]:
        """Return the last events: questions to the user, or the provenance of the answer."""
        work, view = self.work, self.view
        if work.approvals:
            late = work.list_late_results()
            interrupts = [
                build_interrupt(id, one, self.agent.signature) for id, one in work.approvals.items()
            ]
            return [*work.collect(), *late, *view.finish("waiting"), *interrupts]
        events: list[Event] = []
        if not work.has_calls and prepared.classification != "chit_chat":
            question = find_clarification(self.texts.last)
            events += [] if question is None else view.show_question(question)
        events += view.show_answer(session.findings)
        work.thoughts.emit(*_summarize(session.findings))
        return [*events, *work.collect(), *view.finish("done")]


def _summarize(found: Findings) -> tuple[ThoughtType, str]:
    """Return the last thought: without data, an answer may be a refusal or a question."""
    parts = {"table": len(found.tables), "chart": len(found.charts), "file": len(found.downloads)}
    words = [f"{count} {name}{'' if count == 1 else 's'}" for name, count in parts.items() if count]
    if words:
        return "success", f"Answered with {', '.join(words)}."
    return ("success", "Answered.") if found.lineage else ("reflection", "Replied without data.")


def _say(text: str) -> Sequence[Event]:
    id = new_id()
    return [
        TextMessageStart(message_id=id),
        TextMessageContent(message_id=id, content=text),
        TextMessageEnd(message_id=id),
    ]
