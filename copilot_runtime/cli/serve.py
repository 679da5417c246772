"""`copilot-runtime serve`: choose what to serve, listen, and print the address."""

import asyncio
import inspect
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any

import typer
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from copilot_runtime import __version__
from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.api.registry import Registry
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.app.loading import list_private_state, load_extensions
from copilot_runtime.app.server import find_endpoint
from copilot_runtime.base.concurrency import is_being_cancelled
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.cli.banner import show_banner
from copilot_runtime.cli.clock import get_time
from copilot_runtime.cli.forwarded_scheme import ForwardedScheme
from copilot_runtime.cli.http_protocol import limit_reading, limit_silence
from copilot_runtime.cli.listen import explain_listen_error, listen, reserve_port
from copilot_runtime.cli.places import list_places, warn_of_other_file
from copilot_runtime.cli.target import find_target
from copilot_runtime.cli.workers import WorkerPipe, Workers, check_workers, set_port
from copilot_runtime.config.loader import adapter_name
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.runtime.conversations import OPENED, Conversations
from copilot_runtime.security.loopback import LISTENER, Listener
from copilot_runtime.telemetry.logs import configure_logs
from copilot_runtime.telemetry.worker_metrics import WORKER_METRICS, WorkerMetrics

logger = logging.getLogger(__name__)

_LOOK = 0.1
"""Polling interval while waiting for the end of runs, in seconds."""

_LISTENERS = 16
"""Number of duplicates of the listening socket that the event loop polls. libuv accepts one
connection per socket in each iteration of the loop. When a thousand streams keep the loop busy,
an iteration is slow, and new clients would wait for seconds (measured: 4 s)."""


def serve(
    target: str | None,
    settings: CoreSettings,
    path: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
) -> None:
    """Serve until a signal. `path` replaces the path of a runtime's endpoint.

    `settings` come from file and environment, with the command's options applied; `file` is the
    settings file, if there is one. A target's own `Settings(...)` override `settings`, and
    `options` of the command override both.
    """
    _configure_logs(settings)  # first: it decides how a failed start is reported
    _check_workers(settings)
    worker = WorkerPipe.find()
    if worker is None and settings.workers > 1:
        _serve_by_workers(settings)
        return
    name = target or adapter_name(settings)
    found = find_target(target) if target else build_runtime(name, settings)
    places = list_places(target, find_runtime(found), settings, options or {}, file)
    if (runtime := find_runtime(found)) is not None:
        before, settings = settings, _merge_settings(settings, runtime.settings, options or {})
        _check_workers(settings)
        if _list_log_settings(settings) != _list_log_settings(before):
            _configure_logs(settings)
        for extension in runtime.extensions:
            extension.shares_ports = worker is not None
    if worker is None or worker.is_first:
        _warn_of_private_state(settings)
        if target is not None:
            warn_of_other_file(target, runtime, file)
    app = found.lazy_app(path) if isinstance(found, CopilotRuntime) else found
    listener = listen(settings.host, settings.port, is_shared=worker is not None)
    limit_silence(
        listener, 2 * settings.write_timeout
    )  # slow clients are cut off by the write timeout before
    address, port, *_ = listener.getsockname()
    place = Listener(address, settings.host, port)
    proxied = ForwardedScheme(app, settings.proxy.forwarders)
    life = _LifespanApp(
        proxied,
        settings.stop_timeout,
        listener=place,
        metrics=None if worker is None else worker.metrics,
    )
    config = uvicorn.Config(
        life,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # it would trust any client behind a proxy on this machine
        # stopped runs get the same time again for their end
        timeout_graceful_shutdown=ceil(2 * settings.stop_timeout),
        ws_max_size=settings.max_body_bytes,
        http=limit_reading(settings.read_timeout),
    )
    with listener:
        origin = _origin(settings.host, listener.getsockname()[1])
        lines = [*_list_addresses(found, origin, path), *places]
        introduction = "" if runtime is None else runtime.adapter.introduction
        banner = _banner(name, lines, introduction, worker)
        server = _Server(config, banner, life, worker, settings.drain_timeout)
        try:
            server.run(sockets=[listener, *(listener.dup() for _ in range(_LISTENERS - 1))])
        except KeyboardInterrupt:
            return
        except SystemExit:  # raised by uvicorn if the application did not start
            if server.started:
                raise
    if life.failure is not None:
        raise life.failure
    if not server.started:
        raise ConfigurationFailed("The application did not start; the log above says why.")


def _configure_logs(settings: CoreSettings) -> None:
    configure_logs(*_list_log_settings(settings))


def _list_log_settings(settings: CoreSettings) -> tuple[str, str, Sequence[str]]:
    return settings.log_level, settings.log_format, settings.log_debug


def _check_workers(settings: CoreSettings) -> None:
    check_workers(settings.workers, settings.threads)


def _warn_of_private_state(settings: CoreSettings) -> None:
    for state in list_private_state(settings):
        logger.warning("%s %s", state.text, state.hint)


def _serve_by_workers(settings: CoreSettings) -> None:
    """Start worker processes for this command, and wait for them."""
    with ExitStack() as reserved:
        try:
            main = reserved.enter_context(reserve_port(settings.host, settings.port))
        except OSError as error:
            raise explain_listen_error(error, settings.host, settings.port) from error
        variables: dict[str, str] = {}
        for extension in load_extensions():
            reserved.enter_context(extension.reserve_ports(settings))
            variables |= extension.list_worker_variables(settings)
        port = main.getsockname()[1]
        words = [sys.executable, "-m", "copilot_runtime", *set_port(sys.argv[1:], port)]
        workers = Workers(
            words,
            settings.workers,
            environ=variables,
            grace=settings.drain_timeout + 2 * settings.stop_timeout + 5,
            timeout=settings.worker_timeout,
        )
        if code := asyncio.run(workers.run()):
            raise typer.Exit(code)


def find_runtime(found: CopilotRuntime | ASGIApp) -> CopilotRuntime | None:
    """Return the runtime of a target: itself, the runtime of its application, or `None`."""
    if isinstance(found, CopilotRuntime):
        return found
    endpoint = find_endpoint(found)
    runtime = None if endpoint is None else endpoint.runtime
    return runtime if isinstance(runtime, CopilotRuntime) else None


def _merge_settings(
    settings: CoreSettings, written: CoreSettings, options: Mapping[str, Any]
) -> CoreSettings:
    """Return settings overridden by a program's settings and the command's options."""
    values = {name: getattr(written, name) for name in written.model_fields_set}
    return settings.model_copy(update={**values, **options})


class _LifespanApp:
    """An ASGI application with a readable startup error and a shutdown without a traceback.

    On shutdown, active runs have `stop_timeout` seconds before they are stopped.
    """

    def __init__(
        self,
        app: ASGIApp,
        stop_timeout: float,
        *,
        listener: Listener,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._app = app
        self._listener = listener
        self._metrics = metrics
        self._stop_timeout = stop_timeout
        self.failure: CopilotError | None = None
        """The startup error, such as a store that cannot be opened, or `None`."""
        self._opened: list[Conversations] = []
        self._is_stopping = False
        self._runs: asyncio.Task[None] | None = None
        """The task that stops the runs, once started."""
        self._is_forced: Callable[[], bool] = lambda: False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._live if scope["type"] == "lifespan" else self._app
        try:
            await work(scope, receive, send)
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise  # uvicorn logs it; during a shutdown it is not an error

    def drain(self) -> None:
        """Report all runtimes of the application as not ready."""
        for conversations in self._opened:
            conversations.runtime.is_draining = True

    def stop_runs(self, is_forced: Callable[[], bool]) -> "asyncio.Task[None]":
        """Start a task that drains all runtimes of the application, then stops their runs.

        Readers get the last event, and their connections end. The application ends after its runs,
        including runs without readers, unless `is_forced` returns `True`.
        """
        self._is_stopping = True
        self._is_forced = is_forced
        self._runs = asyncio.create_task(self._stop_runs(), name="stop runs")
        return self._runs

    async def _stop_runs(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._stop_timeout):
                await asyncio.gather(*(conversations.drain() for conversations in self._opened))
        await asyncio.gather(*(conversations.aclose() for conversations in self._opened))

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        OPENED.set(self._opened)
        LISTENER.set(self._listener)
        WORKER_METRICS.set(self._metrics)
        failures: list[Message] = []

        async def hold(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":  # its message is a traceback
                failures.append(message)
                return
            if message["type"] == "lifespan.shutdown.failed" and is_being_cancelled():
                return  # a second Ctrl-C: stop at once
            await send(message)

        async def receive_late() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                while self._runs and not self._runs.done() and not self._is_forced():
                    await asyncio.wait((self._runs,), timeout=_LOOK)
            return message

        try:
            await self._app(scope, receive_late, hold)
        except CopilotError as error:
            if not failures:
                raise
            self.failure = error
            failures = [{"type": "lifespan.startup.failed", "message": ""}]
        finally:
            for message in failures:
                await send(message)


class _Server(uvicorn.Server):
    """A server that prints its addresses once it listens, and stops all runs on shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        banner: str,
        life: _LifespanApp,
        worker: WorkerPipe | None,
        drain_timeout: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._banner = banner
        self._worker = worker
        self._life = life
        self._drain_timeout = drain_timeout
        self._is_hurried = asyncio.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the server stops.

        A `SystemExit` in a task of an agent's framework leaves the event loop, whatever awaits the
        task. The loop is then restarted: the run gets the exception, and other runs are unaffected.
        """
        with asyncio.Runner(loop_factory=self.config.get_loop_factory()) as runner:
            serving = runner.get_loop().create_task(self.serve(sockets))
            while not serving.done():
                try:
                    runner.get_loop().run_until_complete(serving)
                except (SystemExit, KeyboardInterrupt) as error:
                    if serving.done():
                        raise
                    logger.error(
                        "A task of the application tried to end the server", exc_info=error
                    )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._worker is None:
            show_banner(self._banner)
        elif self.started and self._worker is not None:
            await self._worker.report_ready(self._banner)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal to stop; the second one ends the drain period."""
        if self.should_exit:
            self._is_hurried.set()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._drain_timeout and not self.force_exit:
            logger.info("Draining for %g seconds", self._drain_timeout)
            self._life.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._drain_timeout):
                    await self._is_hurried.wait()
        stopping = self._life.stop_runs(lambda: self.force_exit)
        try:
            await super().shutdown(sockets)
        finally:
            stopping.cancel()
            await asyncio.wait((stopping,))
            if self._worker is not None:
                self._worker.close()
            asyncio.get_running_loop().set_exception_handler(_log_leftover)


def _log_leftover(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log errors of abandoned runs at debug level: their names are already in the log."""
    logger.debug("%s", context["message"], exc_info=context.get("exception"))


def build_runtime(name: str, settings: CoreSettings) -> CopilotRuntime:
    """Return a runtime configured by settings only."""
    registry = Registry("copilot_runtime.adapters", ADAPTERS)
    make = registry[name]
    if settings.adapter.name:
        registry.clashes()  # logged: the name may be intended for another adapter
    adapter = _build_adapter(make, name, settings.adapter.options)
    chosen = settings.adapter.model_copy(update={"name": name})  # the pages know the demo by it
    settings = settings.model_copy(update={"adapter": chosen})
    return CopilotRuntime(adapter=adapter, actions=[get_time], settings=settings)


def _build_adapter(make: Callable[..., Any], name: str, options: Mapping[str, Any]) -> Any:
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        parameters = ", ".join(inspect.signature(make).parameters) or "none"
        raise ConfigurationFailed(
            f"The options of the adapter {name!r} are invalid: {error}. Known: {parameters}.",
            hint="They are set by adapter.options in copilot.yml.",
        ) from error
    return make(**options)


def _origin(host: str, port: int) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        host = "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _list_addresses(
    found: CopilotRuntime | ASGIApp, origin: str, path: str | None
) -> Sequence[str]:
    """Return the banner lines with the URLs of a target, as far as they are known."""
    if isinstance(found, CopilotRuntime):
        url, page = path or found.settings.path, "/" if found.settings.console.enabled else ""
    elif (endpoint := find_endpoint(found)) is not None:
        url, page = endpoint.path, endpoint.page
    else:
        return [origin]
    runtime_url = f"runtimeUrl  {origin}{url}"
    return [f"try it      {origin}{page}", runtime_url] if page else [runtime_url]


def _banner(
    name: str, lines: Sequence[str], introduction: str, worker: WorkerPipe | None = None
) -> str:
    """Return the startup message; that of a worker is for all of them, and shown by its parent."""
    end = "Ctrl-C stops it."
    if worker is not None:
        name = f"{name} by {worker.count} workers"
        end = f"Ctrl-C stops it, and kill -HUP {os.getppid()} replaces one worker after the other."
    addresses = "\n".join(f"  {line}" for line in lines)
    title = f"copilot-runtime {__version__} serves {name}"
    return "\n\n".join(filter(None, (title, addresses, introduction, end)))
