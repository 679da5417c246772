"""The command line: serve a runtime, talk to one, and see what there is."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from copilot_runtime import __version__
from copilot_runtime.base.errors import CopilotError, MissingPackage
from copilot_runtime.base.gc_tuning import tune_for_startup
from copilot_runtime.cli.program import ProgramOption, read_command_settings
from copilot_runtime.cli.threads import ConfigOption, threads
from copilot_runtime.extensions.access.cli.audit import audit
from copilot_runtime.extensions.access.cli.keys import keys
from copilot_runtime.extensions.analyst.cli.commands import analyst
from copilot_runtime.extensions.events.cli import events
from copilot_runtime.extensions.grpc.cli import codegen
from copilot_runtime.extensions.knowledge.cli import knowledge
from copilot_runtime.extensions.knowledge.cli.ingest import ingest
from copilot_runtime.extensions.knowledge.cli.policy import policy
from copilot_runtime.extensions.operations.cli.backup import backup, restore
from copilot_runtime.extensions.operations.cli.doctor import doctor
from copilot_runtime.extensions.operations.cli.migrate import migrate
from copilot_runtime.extensions.planner.cli.commands import plans
from copilot_runtime.extensions.scenarios.cli import test
from copilot_runtime.extensions.tools.cli import tools
from copilot_runtime.extensions.tracing.cli.traces import traces
from copilot_runtime.telemetry.logs import is_json_log

logger = logging.getLogger(__name__)

cli = typer.Typer(
    name="copilot-runtime",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

cli.add_typer(threads, name="threads")
cli.add_typer(audit, name="audit")
cli.add_typer(keys, name="keys")
cli.add_typer(policy, name="policy")
cli.add_typer(traces, name="traces")
cli.add_typer(tools, name="tools")
cli.add_typer(plans, name="plans")
cli.add_typer(analyst, name="analyst")


def main() -> NoReturn:
    """Run the command line. Errors are printed as one sentence; `--debug` adds the traceback."""
    tune_for_startup()
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        cli(arguments)
    except Exception as error:  # the last handler that can print an error as a sentence
        if debug:
            raise
        if is_json_log():
            logger.error("%s", _sentence(error).replace("\n", " "))
            sys.exit(1)
        sys.exit(_sentence(error))
    sys.exit(0)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"copilot-runtime {__version__}")
        raise typer.Exit


@cli.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Works at any position.")
    ] = False,
) -> None:
    """A CopilotKit runtime in Python.

    \b
    copilot-runtime serve                  a demo, or OpenAI if OPENAI_API_KEY is set
    copilot-runtime serve main:runtime     the runtime in main.py
    copilot-runtime chat                   talk to it
    """


@cli.command()
def serve(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:NAME]",
            help="A CopilotRuntime, an ASGI app, or a function that returns one.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 for every network.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="Path of the URL that clients connect to, such as /graphql.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Server processes, which share a store of threads.")
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a file of the program changes.")
    ] = False,
    services: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Serve these over gRPC, and nothing over HTTP: vector,graph"
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve a runtime over HTTP.

    \b
    copilot-runtime serve
    copilot-runtime serve main:runtime --port 8080 --reload
    copilot-runtime serve examples/hello/app.py:app
    COPILOT_ADAPTER_NAME=demo copilot-runtime serve --host 0.0.0.0
    copilot-runtime serve --services vector,graph

    Without MODULE:NAME, the adapter is the one of copilot.yml; else OpenAI if OPENAI_API_KEY
    is set; else the demo, which needs no key. Options override environment and file;
    `copilot-runtime settings` lists everything that these can set.
    """
    from copilot_runtime.cli.serve import serve as run
    from copilot_runtime.config.loader import read_settings

    values = {"host": host, "port": port, "path": path, "workers": workers}
    options = {name: value for name, value in values.items() if value is not None}
    _set_config_file(config)
    if services is not None:
        from copilot_runtime.extensions.grpc.serve import explain_options, serve_services

        explain_options({**options, "reload": reload})
        os.environ["COPILOT_GRPC_SERVICES"] = services  # a served module reads the variable, too
        serve_services(target, read_settings()[0])
        return
    settings, origins = read_settings(overrides=options)
    if reload:
        from copilot_runtime.cli.reload import serve_again

        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        serve_again(target, words, settings.stop_timeout)
        return
    run(target, settings, settings.path if path else None, options, file=origins.path)


@cli.command()
def chat(
    url: Annotated[
        str,
        typer.Argument(
            help="URL of the runtime, as <CopilotKit runtimeUrl> has it.", envvar="COPILOT_URL"
        ),
    ] = "http://127.0.0.1:8000/graphql",
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="Send this message, print the answer, and exit."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Name of the agent to talk to; by default the model.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="Header of each request, as 'Name: value'."),
    ] = None,
) -> None:
    """Talk to a runtime. Ctrl-C stops an answer, Ctrl-D ends the chat.

    \b
    copilot-runtime chat
    copilot-runtime chat https://example.com/api/copilotkit -H 'Authorization: Bearer ...'
    copilot-runtime chat -m 'What can you do?'
    echo 'Say hello' | copilot-runtime chat
    """
    from copilot_runtime.cli.chat import converse

    raise typer.Exit(converse(url, message=message, agent=agent, headers=header or []))


@cli.command()
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
    as_json: knowledge.JsonOption = False,
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


@cli.command()
def mcp(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A CopilotRuntime, as for serve.")
    ],
    config: ConfigOption = None,
) -> None:
    """Serve actions and agents over MCP to the program that starts this, such as an editor.

    \b
    copilot-runtime mcp main:runtime

    Each action and each agent is a tool. MCP messages use stdin and stdout; the log is on
    stderr. For MCP over HTTP, use the setting serve_mcp.
    """
    from copilot_runtime.config import load_settings
    from copilot_runtime.extensions.mcp.cli import serve as run

    _set_config_file(config)
    run(target, load_settings())


@cli.command()
def schema(
    with_knowledge: Annotated[
        bool, typer.Option("--knowledge", help="That of a runtime with knowledge.")
    ] = False,
    with_traces: Annotated[
        bool, typer.Option("--traces", help="That of a runtime whose traces may be read.")
    ] = False,
    with_plans: Annotated[
        bool, typer.Option("--plans", help="That of a runtime with an agent that plans.")
    ] = False,
    with_tools: Annotated[
        bool, typer.Option("--tools", help="That of a runtime with tools of an operator.")
    ] = False,
    with_events: Annotated[
        bool, typer.Option("--events", help="That of a runtime that keeps events.")
    ] = False,
    with_analyst: Annotated[
        bool, typer.Option("--analyst", help="That of a runtime with a data analyst.")
    ] = False,
) -> None:
    """Print the GraphQL schema.

    \b
    copilot-runtime schema > schema.graphql
    copilot-runtime schema --knowledge > schema.knowledge.graphql
    copilot-runtime schema --traces --plans --tools --events --analyst
    """
    from copilot_runtime.transports.graphql.schema import sdl

    text = sdl(
        knowledge=with_knowledge,
        traces=with_traces,
        plans=with_plans,
        tools=with_tools,
        events=with_events,
        analyst=with_analyst,
    )
    typer.echo(text.rstrip("\n"))


@cli.command()
def plugins() -> None:
    """List adapters, agents and other parts by name.

    Each line shows the name, the package, the import path, and whether the part can be used.
    A package adds a line by an entry point, for instance in the group
    copilot_runtime.adapters.
    """
    from copilot_runtime.cli.tables import format_table, plugin_rows

    for title, rows in plugin_rows():
        typer.echo(f"{title}\n{format_table(rows)}\n")


@cli.command()
def settings(program: ProgramOption = None, config: ConfigOption = None) -> None:
    """List every setting.

    \b
    copilot-runtime settings
    COPILOT_PORT=9000 copilot-runtime settings --config other.yml
    copilot-runtime settings --program main:runtime

    Each line shows the name, the environment variable, the current value and the meaning. A value
    is that of the environment, else that of the settings file, else the default; behind the
    meaning stands which, if it is no default. A dot in a name is a level in the file: mcp.servers
    is the key servers below the key mcp. The last line says where telemetry goes, and what
    enabled that.

    A program may write its own Settings(...), which replace file and environment: --program shows
    those.
    """
    from copilot_runtime.cli.tables import describe_export, format_table, setting_rows

    settings, origins, _ = read_command_settings(program, config)
    typer.echo(format_table(setting_rows(settings, origins)))
    typer.echo(f"\n{describe_export(settings)}")


cli.command()(backup)
cli.command()(restore)
cli.command()(migrate)
cli.command()(doctor)
cli.command()(codegen)
cli.command()(test)
cli.command()(events)
cli.command()(ingest)
cli.command()(knowledge.search)
cli.command()(knowledge.graph)
cli.command()(knowledge.ontology)
cli.command()(knowledge.memory)


def _set_config_file(path: Path | None) -> None:
    """Set the environment variable for the settings file, so that served modules read it, too."""
    if path is not None:
        os.environ["COPILOT_CONFIG"] = str(path)


def _sentence(error: Exception) -> str:
    if isinstance(error, MissingPackage):
        from copilot_runtime.api.registry import explain_install

        if way := explain_install(error):
            return f"{error.message}\n{way}"
    if isinstance(error, CopilotError):
        return f"{error.message}\n{error.hint}" if error.hint else error.message
    return f"{type(error).__name__}: {error}\n--debug shows where."
