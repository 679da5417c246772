"""`copilot-runtime develop tools`: list and call the tools of a file, and check their endpoints."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from copilot_runtime.base.errors import ConfigurationFailed, Misuse, UnknownName
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.program import read_command_settings

if TYPE_CHECKING:
    from copilot_runtime.api.action import Action
    from copilot_runtime.api.run_input import RunInput
    from copilot_runtime.extensions.tools.catalog import ToolCatalog

tools = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ToolsOption = Annotated[
    Path | None,
    typer.Option("--tools", help="File of tools, or folder; default: the setting tools."),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a tool.")]
UserOption = Annotated[str | None, typer.Option(help="The user for whom the tool is called.")]


@tools.callback()
def explain_tools() -> None:
    """List and call the tools of a file, and check their endpoints.

    \b
    copilot-runtime develop tools list --tools tools.yml
    copilot-runtime develop tools call weather '{"city": "Rome"}'
    copilot-runtime develop tools list --program main:runtime

    The file is that of --tools, by default that of the setting tools, from copilot.yml and the
    environment, or from the Settings(...) of a program named by --program.

    A tool has a description for the model, and an endpoint:

    \b
    weather:
      purpose: Tell the weather of a city.
      parameters:
        city: A city, such as Rome.
      endpoint:
        http: {url: "https://weather.example/v1/{city}"}
    """


@tools.command("list")
def list_tools(
    path: ToolsOption = None,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """List tools with their names, endpoints and purposes, without calling them.

    \b
    copilot-runtime develop tools list
    copilot-runtime develop tools list --tools tools/ --json
    """
    catalog = _load(path, program, config)
    purposes = catalog.list_purposes()
    rows = [
        {
            "name": tool.name,
            "endpoint": tool.kind,
            "source": tool.source,
            "purpose": purposes[tool.name],
        }
        for tool in catalog.definitions.values()
    ]
    for name, problem in catalog.problems.items():
        typer.echo(f"The tool {name!r} can never work. {problem}", err=True)
    if as_json:
        show_json(rows)
    else:
        head = ("NAME", "ENDPOINT", "SOURCE", "PURPOSE")
        show_table(head, [[*row.values()] for row in rows], "There are no tools in it.")


@tools.command()
def show(
    name: NameArgument,
    path: ToolsOption = None,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what a model reads of a tool: its description, and the schema of its parameters.

    \b
    copilot-runtime develop tools show weather
    """

    async def find() -> "list[Action]":
        async with _open(path, program, config) as catalog:
            _check_name(catalog, name)
            if name in catalog.problems:
                raise ConfigurationFailed(catalog.problems[name])
            actions = await catalog.describe(name, _build_run(None))
            return [*actions]

    actions = asyncio.run(find())
    if as_json:
        show_json([_encode(action) for action in actions])
        return
    for action in actions:
        typer.echo(f"{action.name}{' (idempotent)' if action.is_idempotent else ''}\n")
        typer.echo(f"{action.description}\n")
        typer.echo(json.dumps(action.parameters, indent=2, ensure_ascii=False))


@tools.command("call")
def call_tool(
    name: NameArgument,
    arguments: Annotated[str, typer.Argument(help="Its arguments, as a JSON object.")] = "{}",
    user: UserOption = None,
    path: ToolsOption = None,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Call a tool as a model would, and print what the model would read.

    \b
    copilot-runtime develop tools call weather '{"city": "Rome"}'
    copilot-runtime develop tools call weather '{"city": "Rome"}' --user ann --json

    The exit status is 1 if the call failed.
    """
    from copilot_runtime.api.action import ActionContext

    context = ActionContext(
        thread_id="cli", run_id="cli", call_id=str(uuid4()), properties={}, headers={}, user=user
    )

    async def call() -> Any:
        async with _open(path, program, config) as catalog:
            if not catalog.has_tool(name):
                raise UnknownName("tool", name, catalog.names)
            return await catalog.call(name, arguments, context)

    _check_arguments(name, arguments)
    result = asyncio.run(call())
    if as_json:
        show_json(asdict(result))
    elif result.error is None:
        typer.echo(result.content)
    else:
        typer.echo("\n".join(filter(None, (result.error, result.hint))), err=True)
    if result.error is not None:
        raise typer.Exit(1)


@tools.command()
def check(
    name: Annotated[str | None, typer.Argument(help="Name of a tool; default: all.")] = None,
    path: ToolsOption = None,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Reach the endpoint of each tool, without calling any tool.

    \b
    copilot-runtime develop tools check
    copilot-runtime develop tools check weather --tools tools.yml

    The exit status is 1 if one cannot be reached, or can never work.
    """

    async def reach() -> Any:
        async with _open(path, program, config) as catalog:
            if name is not None:
                _check_name(catalog, name)
            return await catalog.check(_build_run(None), name)

    found = asyncio.run(reach())
    if as_json:
        show_json([asdict(each) for each in found])
    else:
        rows = [
            (each.tool, each.kind, "ok" if each.is_reachable else "FAILED", each.detail)
            for each in found
        ]
        show_table(("NAME", "ENDPOINT", "STATE", "DETAIL"), rows, "There are no tools in it.")
    if not all(each.is_reachable for each in found):
        raise typer.Exit(1)


@asynccontextmanager
async def _open(
    path: Path | None, program: str | None, config: Path | None
) -> "AsyncGenerator[ToolCatalog]":
    """Open the catalog for a block, and close its connections afterwards."""
    catalog = _load(path, program, config)
    try:
        yield catalog
    finally:
        await catalog.aclose()


def _load(path: Path | None, program: str | None, config: Path | None) -> "ToolCatalog":
    """Return the catalog.

    Misconfigured tools, such as those without a secret, are listed with errors.
    """
    from copilot_runtime.extensions.knowledge.build import build_knowledge
    from copilot_runtime.extensions.tools.catalog import ToolCatalog

    settings, _, runtime = read_command_settings(program, config, has_notice=path is None)
    place = path or settings.tools
    if not place:
        raise ConfigurationFailed(
            "There are no tools: no file of them is named.",
            hint="Name one with --tools, or by the setting tools.",
        )
    knowledge = build_knowledge(settings) if runtime is None else runtime.find(lazy.Knowledge)
    catalog = ToolCatalog(place, read_resources=None if knowledge is None else knowledge.read_texts)
    catalog.load(is_strict=False)
    return catalog


def _check_name(catalog: "ToolCatalog", name: str) -> None:
    if name not in catalog.names:
        raise UnknownName("tool", name, catalog.names)


def _check_arguments(name: str, arguments: str) -> None:
    """Raise `Misuse` if the arguments are no JSON object."""
    try:
        is_object = isinstance(json.loads(arguments.strip() or "{}"), dict | None)
    except ValueError:
        is_object = False
    if not is_object:
        raise Misuse(
            f"The arguments are no JSON object: {arguments}",
            hint="Write one, such as: copilot-runtime develop tools call "
            f'{name} \'{{"city": "Rome"}}\'',
        )


def _build_run(user: str | None) -> "RunInput":
    from copilot_runtime.api.run_input import RunInput

    return RunInput(thread_id="cli", run_id="cli", messages=(), user=user)


def _encode(action: "Action") -> dict[str, Any]:
    return {
        "name": action.name,
        "description": action.description,
        "parameters": action.parameters,
        "idempotent": action.is_idempotent,
    }
