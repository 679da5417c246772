"""Watches a plan of a running server in the terminal, and asks its questions."""

import asyncio
import sys
from contextlib import aclosing

import typer

from copilot_runtime.base.errors import NetworkError
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_objects, as_text, get_text
from copilot_runtime.cli.questions import ask_question
from copilot_runtime.extensions.planner.cli.client import PlanClient
from copilot_runtime.extensions.planner.cli.views import JsonView, PlanView, refresh_often

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
    questions = as_objects(plan.get("questions"))
    lines = [f"The plan {plan_id} waits for an answer. Give it with one of:"]
    for question in questions:
        choice = ["--question", get_text(question, "id")] if len(questions) > 1 else []
        for answer in map(as_text, as_list(question.get("answers"))):
            note = ["--note", "…"] if answer in ("resolve", "done") else []
            lines.append(f"  {client.build_command('answer', plan_id, answer, *choice, *note)}")
    return "\n".join(lines)
