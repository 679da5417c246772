"""The commands `copilot-runtime plans`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from copilot_runtime.base.jsonvalue import JsonObject, as_objects, get_text
from copilot_runtime.cli.options import LOCAL_URL, HeaderOption, UrlOption, with_options
from copilot_runtime.cli.output import JsonOption, show_json, show_table

if TYPE_CHECKING:
    from copilot_runtime.extensions.planner.cli.client import PlanClient


T = TypeVar("T")

plans = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

IdArgument = Annotated[
    str,
    typer.Argument(metavar="PLAN", help="Plan id, or a unique prefix of it."),
]
TaskOption = Annotated[
    str, typer.Option("--task", help="Only the task with this id, such as 2.1, and its subtasks.")
]

_WORDS = {"yes": "approve", "y": "approve", "no": "reject", "n": "reject"}
"""Aliases of answers."""


@plans.callback()
def look_after_plans() -> None:
    """Start, watch, stop, retry and answer plans of a server.

    \b
    copilot-runtime plans list --status waiting
    copilot-runtime plans watch e69b48fd
    copilot-runtime plans answer e69b48fd approve

    An id may be abbreviated to an unambiguous prefix of at least four characters, with or without
    its `ck-`.

    A plan is accessible to the user who created it, authenticated by a header, and to operators:
    without authentication, users on the machine of the server. `plans start` creates one.
    """


def open_client(url: UrlOption = LOCAL_URL, header: HeaderOption = None) -> "PlanClient":
    """Return a client of the server."""
    from copilot_runtime.extensions.planner.cli.client import PlanClient

    return PlanClient(url, header or ())


@plans.command("list")
@with_options(client=open_client)
def list_plans(
    *,
    thread: Annotated[str, typer.Option(help="Only plans of this thread.")] = "",
    status: Annotated[
        str, typer.Option(help="Only this status: running, waiting, finished, failed or stopped.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of plans.")] = 50,
    as_json: JsonOption = False,
    client: "PlanClient",
) -> None:
    """List plans, the newest first.

    \b
    copilot-runtime plans list
    copilot-runtime plans list --status waiting --json
    """
    values = {"thread_id": thread, "status": status}
    found = _run(client, lambda: client.list_plans(values, limit))
    if as_json:
        show_json({"plans": found})
        return
    rows = [
        (
            f"{datetime.fromtimestamp(plan['created_at'], UTC):%Y-%m-%dT%H:%M:%SZ}",
            plan["id"],
            plan["status"],
            plan["user"] or "",
            plan["title"],
        )
        for plan in found
    ]
    show_table(("CREATED", "PLAN", "STATUS", "USER", "REQUEST"), rows, "There are no such plans.")


@plans.command()
@with_options(client=open_client)
def show(*, plan_id: IdArgument, as_json: JsonOption = False, client: "PlanClient") -> None:
    """Draw a plan as a tree, with its outcome and its open questions.

    \b
    copilot-runtime plans show e69b48fd
    copilot-runtime plans show e69b48fd --json | jq '.tasks[].status'
    """
    _print(_run(client, lambda: client.find(plan_id)), client, as_json=as_json)


@plans.command()
@with_options(client=open_client)
def watch(*, plan_id: IdArgument, as_json: JsonOption = False, client: "PlanClient") -> None:
    """Watch a plan until it ends. In a terminal, its questions are asked.

    \b
    copilot-runtime plans watch e69b48fd
    copilot-runtime plans watch e69b48fd --json | jq 'select(.type == "task")'

    Ctrl-C leaves the plan running. The exit status is 0 if it finished, 3 if it waits for an
    answer, and 1 otherwise.
    """
    from copilot_runtime.extensions.planner.cli.session import watch_plan
    from copilot_runtime.extensions.planner.cli.views import build_view

    with asyncio.Runner() as runner:
        try:
            plan_id = get_text(runner.run(client.find(plan_id)), "id")
            code = watch_plan(runner, client, plan_id, build_view(client.url, as_json=as_json))
        except KeyboardInterrupt:
            code = 1
            typer.echo("\nThe plan goes on.", err=True)
        finally:
            runner.run(client.aclose())
    raise typer.Exit(code)


@plans.command()
@with_options(client=open_client)
def stop(
    *, plan_id: IdArgument, task: TaskOption = "", as_json: JsonOption = False, client: "PlanClient"
) -> None:
    """Stop a plan, or one task of it.

    \b
    copilot-runtime plans stop e69b48fd
    copilot-runtime plans stop e69b48fd --task 2.1
    """

    async def work() -> JsonObject:
        before = await client.find(plan_id)
        id = get_text(before, "id")
        plan = await client.touch("stop", id, task)
        if _is_over(before, task):
            typer.echo(f"{f'The task {task}' if task else 'The plan'} was over already.", err=True)
            return plan
        return plan if task else await client.wait_for_end(id) or plan

    _print(_run(client, work), client, as_json=as_json)


@plans.command()
@with_options(client=open_client)
def retry(
    *, plan_id: IdArgument, task: TaskOption = "", as_json: JsonOption = False, client: "PlanClient"
) -> None:
    """Retry all unfinished tasks of a plan, or one of them.

    \b
    copilot-runtime plans retry e69b48fd
    copilot-runtime plans retry e69b48fd --task 2

    The plan must have ended. Finished tasks are not repeated. `plans watch` shows the progress.
    """

    async def work() -> JsonObject:
        return await client.touch("retry", get_text(await client.find(plan_id), "id"), task)

    _print(_run(client, work), client, as_json=as_json)


@plans.command()
@with_options(client=open_client)
def answer(
    *,
    plan_id: IdArgument,
    answer: Annotated[
        str, typer.Argument(help="One of the possible answers that `plans show` lists.")
    ],
    note: Annotated[
        str, typer.Option(help="A reason, the result of a completed call, or the requested input.")
    ] = "",
    question: Annotated[
        str, typer.Option(help="Id of the question; the first of a plan or task needs none.")
    ] = "",
    task: TaskOption = "",
    as_json: JsonOption = False,
    client: "PlanClient",
) -> None:
    """Answer a question of a plan.

    \b
    copilot-runtime plans answer e69b48fd approve
    copilot-runtime plans answer e69b48fd reject --task 3 --note 'Too expensive.'
    copilot-runtime plans answer e69b48fd done --note '{"order": 17}'

    Answer an approval with approve or reject (or yes, or no); a call that a crash interrupted with
    retry, done or fail; an assistant's question with resolve and the answer as the note, or cancel.
    """
    values = {"question_id": question, "answer": _WORDS.get(answer, answer), "note": note}

    async def work() -> JsonObject:
        id = get_text(await client.find(plan_id), "id")
        return await client.touch("answer", id, task, values)

    plan = _run(client, work)
    typer.echo(f"Answered {f'task {task}' if task else 'the plan'}: {values['answer']}.", err=True)
    _print(plan, client, as_json=as_json)


def _is_over(plan: JsonObject, task_id: str) -> bool:
    """Return `True` if the plan or the given task of it has ended."""
    from copilot_runtime.extensions.planner.cli.tree import walk_tasks

    tasks = walk_tasks(as_objects(plan.get("tasks"))) if task_id else ()
    found = next((task for task in tasks if task.get("id") == task_id), plan)
    return bool(plan.get("ended_at") or found.get("ended_at"))


def _run(client: "PlanClient", work: Callable[[], Awaitable[T]]) -> T:
    async def work_and_close() -> T:
        try:
            return await work()
        finally:
            await client.aclose()

    return asyncio.run(work_and_close())


def _print(plan: JsonObject, client: "PlanClient", *, as_json: bool) -> None:
    """Print the current state of a plan."""
    if as_json:
        show_json(plan)
        return
    from copilot_runtime.extensions.planner.cli.views import print_plan

    print_plan(plan, client.url)


@plans.command("start")
def start(
    request: Annotated[
        str | None, typer.Argument(help="The request; by default, the standard input.")
    ] = None,
    url: UrlOption = LOCAL_URL,
    agent: Annotated[
        str, typer.Option(help="Name of the planner agent: the setting planner.name.")
    ] = "planner",
    header: HeaderOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve all plans and tasks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send a request to a planner, and watch its tasks.

    \b
    copilot-runtime plans start 'Compare three hotels in Rome, and book the best'
    copilot-runtime plans start 'Write the report' --url https://example.com/api/copilotkit --yes
    copilot-runtime plans start 'Write the report' > report.log
    copilot-runtime plans start 'Write the report' --json | jq 'select(.type == "task")'

    The server needs the setting planner.name. In a terminal, the plan is shown as a live tree of
    tasks with their agent, duration, cost, evaluation and corrections; the cost of the plan
    includes planning. Questions are asked below it: approvals, and the outcome of interrupted
    calls. Elsewhere, each change is printed as a line, and questions stay open unless --yes answers
    them.

    Ctrl-C stops the plan; a second one exits immediately. Ctrl-D at a question leaves it open, and
    the plan waiting: answer it later with `copilot-runtime plans`. The exit status is 0 if the plan
    finished, 3 if it waits for an answer, and 1 otherwise.
    """
    from copilot_runtime.extensions.planner.cli.session import carry_out

    headers = header or []
    code = carry_out(url, request, agent=agent, headers=headers, is_approved=yes, as_json=as_json)
    raise typer.Exit(code)
