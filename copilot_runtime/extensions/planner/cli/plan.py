"""The command `copilot-runtime plan`: give a task to a planner, and follow its plan."""

from typing import Annotated

import typer

from copilot_runtime.cli.output import JsonOption


def plan(
    request: Annotated[
        str | None, typer.Argument(help="What is to be done; by default, what is piped in.")
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            help="URL of the runtime, as <CopilotKit runtimeUrl> has it.",
            envvar="COPILOT_URL",
        ),
    ] = "http://127.0.0.1:8000/graphql",
    agent: Annotated[
        str, typer.Option(help="Name of the agent that plans: the setting planner.name.")
    ] = "planner",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="Header of each request, as 'Name: value'."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve each plan and task that asks for it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Have a planner do something, and watch its tasks.

    \b
    copilot-runtime plan 'Compare three hotels in Rome, and book the best'
    copilot-runtime plan 'Write the report' --url https://example.com/api/copilotkit --yes
    copilot-runtime plan 'Write the report' > report.log
    copilot-runtime plan 'Write the report' --json | jq 'select(.type == "task")'

    The server needs the setting planner.name. In a terminal, the plan is a tree that grows: who
    does a task, how long it took, what it cost, what is missing, and corrections. Questions are
    asked below it: whether a task may begin, and what became of a call that was interrupted.
    Elsewhere, each change is a line, and questions stay open unless --yes answers them.

    Ctrl-C stops the plan; a second one leaves at once. Ctrl-D at a question leaves it open, and the
    plan waiting: `copilot-runtime plans` answers later. The exit status is 0 if the plan finished,
    3 if it waits for a person, and 1 if it did not finish.
    """
    from copilot_runtime.extensions.planner.cli.session import carry_out

    headers = header or []
    code = carry_out(url, request, agent=agent, headers=headers, is_approved=yes, as_json=as_json)
    raise typer.Exit(code)
