"""The MCP server behind pipes, for whoever starts this process: an editor, a desktop program."""

from copilot_runtime.transports.mcp.server import mcp_server
from copilot_runtime.transports.program_runs import ProgramRuns


async def serve_pipes(program_runs: ProgramRuns) -> None:
    """Speak the protocol over stdin and stdout until the other side ends."""
    server = mcp_server(program_runs)
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
