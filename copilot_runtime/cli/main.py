"""The command line: serve a runtime, talk to one, and see what there is."""

import inspect
import logging
import sys
from typing import Annotated, Any, NoReturn

import typer

from copilot_runtime import __version__
from copilot_runtime.api.registry import Registry, explain_missing
from copilot_runtime.base.errors import CopilotError, MissingPackage
from copilot_runtime.base.jsontext import replace_surrogates
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.cli.groups import CommandGroup, build_groups
from copilot_runtime.cli.new import new
from copilot_runtime.cli.options import LOCAL_URL, HeaderOption, UrlOption
from copilot_runtime.cli.program import ProgramOption, name_config_file, read_command_settings
from copilot_runtime.cli.threads import ConfigOption, threads
from copilot_runtime.config.plugins import load_plugins
from copilot_runtime.extensions import COMMANDS, SERVERS
from copilot_runtime.telemetry.logs import is_json_log

logger = logging.getLogger(__name__)

cli = typer.Typer(
    name="copilot-runtime",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

cli.command()(new)
groups = build_groups(cli)
groups["operate"].add_typer(threads, name="threads")
develop = groups["develop"]


def main() -> NoReturn:
    """Run the command line. Errors are printed as one sentence; `--debug` adds the traceback."""
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
    copilot-runtime new library            a project to start from
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
        str | None, typer.Option(help="URL path for clients, such as /graphql.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Server processes, which share a thread store.")
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a source file changes.")
    ] = False,
    services: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Serve these services over gRPC instead of HTTP: vector,graph"
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

    Without MODULE:NAME, the adapter is that of the settings; else OpenAI if OPENAI_API_KEY is
    set; else the demo, which needs no key. Options override environment and file;
    `copilot-runtime settings` lists all settings.
    """
    from copilot_runtime.cli.serve import serve as run
    from copilot_runtime.config.loader import read_settings

    values = {"host": host, "port": port, "path": path, "workers": workers}
    options = {name: value for name, value in values.items() if value is not None}
    name_config_file(config)
    if services is not None:
        serve_services = Registry("copilot_runtime.servers", SERVERS, noun="server")["services"]
        serve_services(target, services, {**options, "reload": reload})
        return
    settings, origins = read_settings(overrides=options)
    if reload:
        from copilot_runtime.cli.reload import serve_again

        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        serve_again(target, words, settings)
        return
    run(target, settings, settings.path if path else None, options, file=origins.path)


@cli.command()
def chat(
    url: UrlOption = LOCAL_URL,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", help="Send this message, print the answer, and exit."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Name of the agent; by default, the plain chat.")
    ] = None,
    header: HeaderOption = None,
) -> None:
    """Talk to a runtime. Ctrl-C stops an answer, Ctrl-D ends the chat.

    \b
    copilot-runtime chat
    copilot-runtime chat --url https://example.com/api/copilotkit -H 'Authorization: Bearer ...'
    copilot-runtime chat -m 'What can you do?'
    echo 'Say hello' | copilot-runtime chat
    """
    from copilot_runtime.cli.chat import converse

    raise typer.Exit(converse(url, message=message, agent=agent, headers=header or []))


@develop.command()
def schema(
    with_knowledge: Annotated[
        bool, typer.Option("--knowledge", help="Include the fields of knowledge.")
    ] = False,
    with_traces: Annotated[
        bool, typer.Option("--traces", help="Include the fields of traces.")
    ] = False,
    with_plans: Annotated[
        bool, typer.Option("--plans", help="Include the fields of plans.")
    ] = False,
    with_tools: Annotated[
        bool, typer.Option("--tools", help="Include the fields of the operator's tools.")
    ] = False,
    with_events: Annotated[
        bool, typer.Option("--events", help="Include the fields of stored events.")
    ] = False,
    with_analyst: Annotated[
        bool, typer.Option("--analyst", help="Include the fields of the data analyst.")
    ] = False,
) -> None:
    """Print the GraphQL schema.

    \b
    copilot-runtime develop schema > schema.graphql
    copilot-runtime develop schema --knowledge > schema.knowledge.graphql
    copilot-runtime develop schema --traces --plans --tools --events --analyst
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


@develop.command()
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

    Each line shows the name, the environment variable, the current value and the description. A
    value is that of the environment, else that of the settings file, else the default; if it is
    not the default, its source follows the description. A dot in a name is a level in the file:
    mcp.servers is the key servers below the key mcp. The last line says where telemetry is sent,
    and which setting enabled that.

    A program may construct its own Settings(...), which replace file and environment: --program
    shows these.
    """
    from copilot_runtime.app.loading import load_extensions
    from copilot_runtime.cli.tables import format_table, setting_rows

    settings, origins, runtime = read_command_settings(program, config)
    typer.echo(replace_surrogates(format_table(setting_rows(settings, origins))))
    extensions = load_extensions() if runtime is None else runtime.extensions
    for sentence in filter(None, (one.describe_settings(settings) for one in extensions)):
        typer.echo(replace_surrogates(f"\n{sentence}"))


def _add_command(name: str, command: Any) -> None:
    """Add a command, such as `test` or `operate backup`. Raises `KeyError` for an unknown group."""
    group, _, own = name.rpartition(" ")
    if isinstance(command, typer.Typer):
        groups[group].add_typer(command, name=own)
    else:
        groups[group].command(own)(command)


def _add_plugins() -> None:
    """Add the commands of installed plugins. A command that cannot be imported is only logged."""
    try:
        plugins = load_plugins()
    except CopilotError as error:
        logger.warning("The commands of plugins are missing: %s", error.message)
        return
    for name, plugin in plugins.items():
        commands = getattr(plugin, "commands", {})
        taken = {
            f"{group} {command.name or getattr(command.callback, '__name__', '')}".strip()
            for group, one in groups.items()
            for command in (*one.registered_commands, *one.registered_groups)
        }
        for key in commands:
            try:
                if key in taken:
                    raise ValueError("there is another command of that name")
                command = Registry("copilot_runtime.commands", commands, noun="command")[key]
                if not isinstance(command, typer.Typer):
                    inspect.signature(command, eval_str=True)  # it would break all commands
                _add_command(key, command)
            except (Exception, SystemExit) as error:  # imports may do anything
                logger.warning("The command %r of %s is missing: %s", key, name, error)


_table = Registry("copilot_runtime.commands", COMMANDS, noun="command")
for _command in COMMANDS:
    _add_command(_command, _table[_command])
_add_plugins()


def _sentence(error: Exception) -> str:
    if isinstance(error, MissingPackage):
        return explain_missing(error)
    if isinstance(error, CopilotError):
        return f"{error.message}\n{error.hint}" if error.hint else error.message
    return REDACTOR.redact(f"{type(error).__name__}: {error}\n--debug shows where.")
