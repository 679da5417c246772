"""The command `copilot-runtime doctor`."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from copilot_runtime.cli.output import JsonOption, show_json
from copilot_runtime.cli.threads import ConfigOption

if TYPE_CHECKING:
    from copilot_runtime.app.app import CopilotRuntime
    from copilot_runtime.extensions.operations.doctor import Finding

_MARKS = {"good": "✓", "warning": "!", "problem": "✗"}


def doctor(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:NAME]", help="A CopilotRuntime, as for serve.")
    ] = None,
    call: Annotated[
        bool,
        typer.Option("--call", help="Ask the model and the embedder, which costs a few tokens."),
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, as for serve.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on, as for serve.", min=0, max=65535, show_default=False),
    ] = None,
    services: Annotated[
        str | None,
        typer.Option(help="Services over gRPC and nothing else, as for serve: vector,graph."),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Look at everything that a server needs, and say what is wrong and how to mend it.

    \b
    copilot-runtime doctor
    copilot-runtime doctor main:runtime --call
    copilot-runtime doctor --host 0.0.0.0 --port 8080
    copilot-runtime doctor --services vector,graph
    copilot-runtime doctor --json | jq '.[] | select(.state != "good")'

    Settings, packages, open files, disks, ports, clocks, who may read the files, the versions of
    all stores, the carrier, the store of limits, the storage of knowledge, the audit log, the
    provider of the model, embeddings, MCP servers, and receivers of telemetry. Nothing is changed,
    and no secret is shown. --host, --port and --services are those with which the server starts.

    ✓ is good, ! is worth a look, ✗ keeps something from working. The exit status is 1 if there
    is a ✗.
    """
    from copilot_runtime.base.errors import CopilotError
    from copilot_runtime.config.loader import adapter_name
    from copilot_runtime.extensions.grpc.serve import explain_options
    from copilot_runtime.extensions.operations.doctor import examine
    from copilot_runtime.extensions.operations.doctor.finding import explain_error
    from copilot_runtime.extensions.settings import read_settings

    if config is not None:
        os.environ["COPILOT_CONFIG"] = str(config)  # a module that is served reads the same one
    options = {"host": host, "port": port}
    options = {name: value for name, value in options.items() if value is not None}
    if services is not None:
        explain_options(options)
        os.environ["COPILOT_GRPC_SERVICES"] = services
    try:
        settings, origins = read_settings(config, overrides=options)
    except CopilotError as error:
        _report([explain_error("configuration", error)], as_json=as_json)

    def make_runtime() -> "CopilotRuntime":
        from copilot_runtime.base.errors import ConfigurationFailed
        from copilot_runtime.cli.serve import build_runtime, find_runtime
        from copilot_runtime.cli.target import find_target

        if target is None:
            return build_runtime(adapter_name(settings), settings)
        if (runtime := find_runtime(find_target(target))) is None:
            raise ConfigurationFailed(f"{target} is no CopilotRuntime.")
        return runtime

    path = Path(origins.path) if origins.path else None
    found = asyncio.run(
        examine(
            settings,
            make_runtime,
            config=path,
            environ=os.environ,
            calls=call,
            options=options,
            is_http=services is None,
        )
    )
    _report(found, as_json=as_json)


def _report(found: "Sequence[Finding]", *, as_json: bool) -> NoReturn:
    """Print the findings, and exit."""
    if as_json:
        show_json([asdict(finding) for finding in found])
    else:
        _show(found)
    raise typer.Exit(int(any(finding.state == "problem" for finding in found)))


def _show(found: "Sequence[Finding]") -> None:
    width = max(len(finding.name) for finding in found)
    for finding in found:
        typer.echo(f"{_MARKS[finding.state]} {finding.name:<{width}}  {finding.text}")
        if finding.hint:
            typer.echo(f"  {'':<{width}}  → {finding.hint}")
    counts = {state: sum(one.state == state for one in found) for state in _MARKS}
    typer.echo(
        f"\n{counts['good']} good, {counts['warning']} worth a look, {counts['problem']} wrong"
    )
