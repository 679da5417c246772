"""The command `copilot-runtime develop mcp`: serve actions and agents over stdin and stdout."""

from typing import Annotated

import typer

from copilot_runtime.cli.program import name_config_file
from copilot_runtime.cli.threads import ConfigOption


def mcp(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A CopilotRuntime, as for serve.")
    ],
    config: ConfigOption = None,
) -> None:
    """Serve actions and agents over MCP to the program that starts this, such as an editor.

    \b
    copilot-runtime develop mcp main:runtime

    Each action and each agent is a tool. MCP messages use stdin and stdout; the log is on
    stderr. For MCP over HTTP, use the setting serve_mcp.
    """
    from copilot_runtime.extensions.mcp.serve import serve
    from copilot_runtime.extensions.settings import load_settings

    name_config_file(config)
    serve(target, load_settings())
