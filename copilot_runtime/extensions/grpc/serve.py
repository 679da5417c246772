"""`copilot-runtime serve --services`: a server for gRPC only."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from copilot_runtime import __version__
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.banner import show_banner
from copilot_runtime.cli.serve import build_runtime, find_runtime
from copilot_runtime.cli.target import find_target
from copilot_runtime.config.loader import adapter_name
from copilot_runtime.extensions.grpc import asks_model
from copilot_runtime.extensions.settings import Settings, load_settings, narrow_settings
from copilot_runtime.telemetry.logs import configure_logs

logger = logging.getLogger(__name__)


def serve_services(target: str | None, services: str, options: Mapping[str, Any]) -> None:
    """Serve services, named as in `grpc.services`, until a signal stops the process.

    Raises `ConfigurationFailed` for `options` of the command that are for HTTP.
    """
    explain_options(options)
    os.environ["COPILOT_GRPC_SERVICES"] = services  # a module that is served reads it, too
    _serve_target(target, load_settings())


def _serve_target(target: str | None, settings: Settings) -> None:
    configure_logs(settings.log_level, settings.log_format, settings.log_debug)
    model = adapter_name(settings)
    runtime = find_runtime(find_target(target)) if target else build_runtime(model, settings)
    if runtime is None:
        raise ConfigurationFailed(f"{target} is no CopilotRuntime, so it has no services.")
    if not narrow_settings(runtime.settings).grpc.services:
        raise ConfigurationFailed(
            f"The settings{f' of {target}' if target else ''} name no services.",
            hint="Write --services vector,graph; a program with Settings of its own writes them as "
            "Settings(grpc={'services': ['vector', 'graph']}).",
        )
    with asyncio.Runner(loop_factory=_find_loop_factory()) as runner:
        is_named = target or asks_model(narrow_settings(runtime.settings).grpc.services)
        runner.run(_serve(runtime, (target or model) if is_named else ""))


async def _serve(runtime: CopilotRuntime, name: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    from copilot_runtime.extensions.grpc.server import GrpcServer

    async with runtime.running():
        server = runtime.get(GrpcServer)
        lines = [
            f"copilot-runtime {__version__} serves {f'{name} ' if name else ''}over gRPC",
            "",
            f"  address   {server.address}",
            *(f"  service   {one.descriptor.full_name}" for one in server.services),
            "",
            "Ctrl-C stops it.",
        ]
        show_banner("\n".join(lines))
        await stopped.wait()


def _find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, or None if it is not installed: it halves the duration of calls."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def explain_options(options: Mapping[str, Any]) -> None:
    """Raise `ConfigurationFailed` if options for HTTP are set, which is not served."""
    named = [f"--{name}" for name, value in options.items() if value]
    if named:
        raise ConfigurationFailed(
            f"{', '.join(named)} is for HTTP, and --services serves gRPC alone.",
            hint="The setting grpc.address says where: COPILOT_GRPC_ADDRESS=127.0.0.1:50051",
        )
