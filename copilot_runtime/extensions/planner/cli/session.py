"""The command `copilot-runtime plans start`: sends a request to a planner and watches its plan."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from uuid import uuid4

import typer

from copilot_runtime.agui.outcome import AgentFailed
from copilot_runtime.api.events import Activity, Interrupt
from copilot_runtime.api.messages import TextMessage, new_id
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed, CopilotError, NetworkError
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_objects, as_text, get_text
from copilot_runtime.cli.agent_client import AgentClient
from copilot_runtime.cli.questions import answer_interrupt, ask_question
from copilot_runtime.extensions.planner.agent import ACTIVITY
from copilot_runtime.extensions.planner.cli.client import PlanClient
from copilot_runtime.extensions.planner.cli.views import (
    JsonView,
    PlanView,
    build_view,
    refresh_often,
)


def carry_out(
    url: str,
    request: str | None,
    *,
    agent: str,
    headers: Sequence[str] = (),
    is_approved: bool = False,
    as_json: bool = False,
) -> int:
    """Send a request to a planner, print the progress of its plan, and return the exit status.

    `is_approved` answers all approvals. Raises `ConfigurationFailed` for an invalid URL, header or
    request, and `NetworkError` if the runtime cannot be reached or its response is invalid.
    """
    client = AgentClient(url, agent, headers)
    may_ask = sys.stdin.isatty() and not as_json
    request = _read_request(request)
    plans = PlanClient(url, headers)
    session = PlanSession(client, plans, build_view(client.url, as_json=as_json), request)
    with asyncio.Runner() as runner:
        try:
            return _converse(runner, session, may_ask, is_approved=is_approved)
        finally:
            runner.run(client.aclose())
            runner.run(plans.aclose())


def _read_request(request: str | None) -> str:
    text = sys.stdin.read() if request is None and not sys.stdin.isatty() else request or ""
    if not text.strip():
        raise ConfigurationFailed(
            "There is nothing to plan: the request is empty.",
            hint="Give a request, as in: copilot-runtime plans start 'Compare three hotels'",
        )
    return text.strip()


def _converse(
    runner: asyncio.Runner, session: "PlanSession", may_ask: bool, *, is_approved: bool
) -> int:
    """Run a plan until it ends or a question stays unanswered; return the exit status."""
    answers: Sequence[Resume] = ()
    try:
        while questions := runner.run(session.run(answers)):
            answers = [
                answer
                for question in questions
                if (
                    answer := answer_interrupt(
                        question, may_ask, is_approved=is_approved, plan=session.plan
                    )
                )
            ]
            if not answers:
                typer.echo(describe_waiting(session.plans, session.plan), err=True)
                return WAITING
        if session.is_detached:
            return watch_plan(runner, session.plans, session.plan_id, session.view)
    except KeyboardInterrupt:
        runner.run(session.stop())
        typer.echo("\n(stopped)", err=True)
        return NOT_FINISHED
    except NetworkError as error:
        if session.plan_id and not session.plan.get("ended_at"):
            raise session.plans.explain_loss(error, session.plan_id) from error
        raise
    return FINISHED if session.is_good else NOT_FINISHED


class PlanSession:
    """One request to a planner, and the state of its plan."""

    def __init__(
        self, client: AgentClient, plans: PlanClient, view: PlanView, request: str
    ) -> None:
        self._client = client
        self.plans = plans
        self.view = view
        self._thread_id = str(uuid4())
        self._question = TextMessage(id=new_id(), role="user", content=request)
        self.plan: JsonObject = {}
        """The last snapshot of the plan; empty before the first."""
        self._has_failed = False

    @property
    def plan_id(self) -> str:
        """The id of the plan; empty before the first snapshot."""
        return get_text(self.plan, "id")

    @property
    def is_good(self) -> bool:
        """`True` if the plan finished, or the request was answered without a plan."""
        return not self._has_failed and self.plan.get("status", "finished") == "finished"

    @property
    def is_detached(self) -> bool:
        """`True` if the plan continues after the run has ended at its time limit."""
        return not self._has_failed and self.plan.get("status") == "running"

    async def run(self, answers: Sequence[Resume] = ()) -> Sequence[Interrupt]:
        """Send the request or answers, print the events, and return the interrupts at the end.

        A cancellation stops the plan. Raises `NetworkError` like `AgentClient.run`.
        """
        run = RunInput(
            thread_id=self._thread_id,
            run_id=str(uuid4()),
            messages=[self._question],
            agent=self._client.agent,
            resume=answers,
        )
        questions: list[Interrupt] = []
        try:
            async with (
                refresh_often(self.view),
                aclosing(self._client.run(run, {})) as events,
            ):
                async for event in events:
                    match event:
                        case Activity(activity_type=kind, content=content) if kind == ACTIVITY:
                            self.plan = content
                            self.view.show(content)
                        case Interrupt():
                            questions.append(event)
                        case _:
                            self.view.print_event(event)
        except asyncio.CancelledError:
            await self._client.stop(self._thread_id)
            await self.stop()
            raise
        except (AgentFailed, Cancelled) as error:
            self.view.pause()
            typer.echo(f"{error.message} [{error.code}]", err=True)
            self._has_failed = True
        finally:
            self.view.pause()
        return questions

    async def stop(self) -> None:
        """Stop the plan, and print its last state; a second Ctrl-C exits at once."""
        if not self.plan_id or self.plan.get("ended_at"):
            return
        with suppress(CopilotError):
            await self.plans.touch("stop", self.plan_id)
            if plan := await self.plans.wait_for_end(self.plan_id):
                self.plan = plan
                self.view.show(plan)
                self.view.pause()


FINISHED, NOT_FINISHED, WAITING = 0, 1, 3
"""Exit statuses of the commands."""


def watch_plan(runner: asyncio.Runner, client: PlanClient, plan_id: str, view: PlanView) -> int:
    """Print a plan until it ends, and return the exit status.

    In a terminal, its questions are asked; the command ends at the first one that is not answered.
    Raises `NetworkError`.
    """
    may_ask = sys.stdin.isatty() and not isinstance(view, JsonView)
    while True:
        try:
            plan = runner.run(_follow(client, plan_id, view, may_ask=may_ask))
        except NetworkError as error:
            raise client.explain_loss(error, plan_id) from error
        if plan.get("ended_at"):
            if output := runner.run(client.get_output(plan_id)):
                view.print_text(output)
            return FINISHED if plan.get("status") == "finished" else NOT_FINISHED
        for question in as_objects(plan.get("questions")):
            if (reply := ask_question(question)) is None:
                typer.echo(describe_waiting(client, plan), err=True)
                return WAITING
            answer, note = reply
            body = {"question_id": get_text(question, "id"), "answer": answer, "note": note}
            runner.run(client.touch("answer", plan_id, body=body))


async def _follow(client: PlanClient, plan_id: str, view: PlanView, *, may_ask: bool) -> JsonObject:
    """Print a plan until it ends or, with `may_ask`, waits for a person; return its last state."""
    plan: JsonObject = {}
    async with refresh_often(view), aclosing(client.follow(plan_id)) as pictures:
        async for plan in pictures:
            view.show(plan)
            if plan.get("ended_at") or (may_ask and plan.get("status") == "waiting"):
                break
    view.pause()
    return plan


def describe_waiting(client: PlanClient, plan: JsonObject) -> str:
    """Return the commands that answer the open questions of a plan."""
    plan_id = get_text(plan, "id")
    lines = [f"The plan {plan_id} waits for an answer. Give it with one of:"]
    for question in as_objects(plan.get("questions")):
        choice = ["--question", get_text(question, "id")]
        for answer in map(as_text, as_list(question.get("answers"))):
            note = ["--note", "…"] if answer in ("resolve", "done") else []
            lines.append(f"  {client.build_command('answer', plan_id, answer, *choice, *note)}")
    return "\n".join(lines)
