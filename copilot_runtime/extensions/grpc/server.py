"""The gRPC server, with the services of the settings, health and reflection."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import Server, ServicerContext
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.grpc import RPC_SERVICES
from copilot_runtime.extensions.grpc.calls import CallGate
from copilot_runtime.extensions.grpc.message import receive, unpack
from copilot_runtime.extensions.grpc.service import RpcService
from copilot_runtime.extensions.grpc.settings import GrpcSettings
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.transport import RequestPolicy, Services

logger = logging.getLogger(__name__)

_KEEPALIVE_MS = 30_000
_LEAST_PING_MS = 10_000
_MOST_METADATA = 32 * 1024
_COMPRESSIONS = 0b101
"""Accepted encodings: none, and gzip, which `unpack` limits. Deflate is refused, because it cannot
be told from a message."""


class GrpcServer:
    """Serves gRPC services of a runtime between `open` and `aclose`, in one event loop."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        has_users: bool,
        policies: Sequence[RequestPolicy] = (),
    ) -> None:
        """Raises `ConfigurationFailed` if a service cannot be offered."""
        self._settings = settings
        self._options = settings.grpc
        check_access(self._options, has_users=has_users)
        self.services = build_rpc_services(self._options.services, services)
        self._gate = CallGate(
            authenticator=authenticator,
            telemetry=telemetry,
            policies=policies,
            max_bytes=settings.max_body_bytes,
            read_timeout=settings.read_timeout,
            timeout=self._options.timeout,
            is_closing=lambda: self._is_closing,
        )
        self._is_closing = False
        self._server: Server | None = None
        names = [one.descriptor.full_name for one in self.services]
        self._public = PublicServices(names, reflects=self._options.reflection)
        self.shares_port = False
        """True if other workers of the same server listen on the same address."""
        self.port = 0
        """The port; 0 for a Unix socket."""

    @property
    def address(self) -> str:
        """The address, for display."""
        scheme = "grpcs" if self._options.certificate else "grpc"
        if self._options.address.startswith("unix:"):
            return self._options.address
        return f"{scheme}://{self._options.address.rpartition(':')[0]}:{self.port}"

    async def open(self) -> None:
        """Listen. Raises `ConfigurationFailed` if the address cannot be used."""
        self._is_closing, self._public.is_serving = False, True
        credentials = _read_credentials(self._options)
        server = grpc.aio.server(
            options=self._list_options(), maximum_concurrent_rpcs=self._options.max_calls
        )
        server.add_generic_rpc_handlers(
            [*map(self._gate.build_handler, self.services), *self._public.build_handlers()]
        )
        try:
            if credentials is None:
                self.port = server.add_insecure_port(self._options.address)
            else:
                self.port = server.add_secure_port(self._options.address, credentials)
        except RuntimeError as error:
            raise ConfigurationFailed(
                f"Cannot listen on {self._options.address!r} for gRPC: {error}",
                hint="Set grpc.address to another one, or stop the process that uses it.",
            ) from error
        await server.start()
        self._server = server
        names = [one.descriptor.full_name for one in self.services]
        logger.info("Services over gRPC at %s: %s", self.address, ", ".join(names))

    async def aclose(self) -> None:
        """Refuse new calls, wait for current ones to end, and cancel those that do not."""
        server, self._server = self._server, None
        if server is None:
            return
        self._is_closing, self._public.is_serving = True, False
        await server.stop(self._settings.stop_timeout)

    def _list_options(self) -> Sequence[tuple[str, Any]]:
        limit = self._settings.max_body_bytes
        return [
            ("grpc.max_receive_message_length", limit),
            ("grpc.per_message_decompression", 0),  # no limit here: `unpack` has one
            ("grpc.compression_enabled_algorithms_bitset", _COMPRESSIONS),
            ("grpc.max_send_message_length", -1),  # our own responses
            ("grpc.max_metadata_size", _MOST_METADATA),
            # otherwise a second server on this port would silently share the calls
            ("grpc.so_reuseport", int(self.shares_port)),
            # otherwise the flow-control window of an unread call grows to any size
            ("grpc.http2.bdp_probe", 0),
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_MS),
        ]


def build_rpc_services(names: Sequence[str], services: Services) -> Sequence[RpcService]:
    """Return services by their names. Raises `UnknownName` and `ConfigurationFailed`."""
    table = Registry("copilot_runtime.grpc_services", RPC_SERVICES, noun="gRPC service")
    found: list[RpcService] = []
    for name in dict.fromkeys(names):
        make = _import_class(name) if ":" in name else table[name]
        service = make(services)
        if not isinstance(service, RpcService):
            raise ConfigurationFailed(
                f"grpc.services names {name!r}, which makes a {type(service).__name__}.",
                hint="Subclass copilot_runtime.extensions.grpc.service.RpcService.",
            )
        found.append(service)
    return found


def check_access(options: GrpcSettings, *, has_users: bool) -> None:
    """Raise `ConfigurationFailed` if services would be reachable without authentication.

    Unencrypted traffic over a network only causes a warning, because there may be a service mesh.
    """
    if options.is_local:
        return
    if not (has_users or options.client_ca):
        raise ConfigurationFailed(
            f"grpc.address is {options.address!r}, and calls would not be authenticated.",
            hint="Set access.authenticate: [service_tokens] and service_tokens.secrets, or "
            "grpc.client_ca for certificates of clients; or listen on 127.0.0.1.",
        )
    if not options.certificate:
        logger.warning(
            "Services over gRPC are offered at %s without TLS: set grpc.certificate and grpc.key, "
            "unless the network encrypts.",
            options.address,
        )


def _import_class(name: str) -> Any:
    """Return the class at `module:Class` or `folder/file.py:Class`, as `serve` finds a runtime."""
    module, _, attribute = name.partition(":")
    file, folder = Path(module), Path.cwd()
    if file.suffix == ".py" or len(file.parts) > 1:
        folder, module = file.parent.resolve(), file.stem
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationFailed(
            f"grpc.services names {name!r}, which cannot be imported: {error}. Looked in the "
            f"installed packages and in {folder}.",
            hint="A file of another folder is named with it: shop/shop_service.py:ShopService",
        ) from error


def _read_credentials(options: GrpcSettings) -> grpc.ServerCredentials | None:
    """Return the TLS credentials from PEM files, or None. Raises `ConfigurationFailed`."""
    if not options.certificate:
        return None
    key, certificate = _read(options.key), _read(options.certificate)
    authority = _read(options.client_ca) if options.client_ca else None
    return grpc.ssl_server_credentials(
        [(key, certificate)], authority, require_client_auth=authority is not None
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationFailed(f"{path} cannot be read: {error.strerror}.") from error


_MAX_CALLS = 16
_CALL_SECONDS = 30.0
_MAX_BYTES = 64 * 1024

Context = ServicerContext[Any, Any]


class PublicServices:
    """The health and reflection services, which need no token. `Watch` is not supported.

    At most 16 calls run concurrently, for 30 seconds each: a further one ends the oldest. A client
    that holds calls open therefore cannot block others, and messages use little memory.
    """

    def __init__(self, names: Sequence[str], *, reflects: bool) -> None:
        self._names = frozenset(("", *names))
        self._reflects = reflects
        self._reflection: Any = None
        if reflects:
            module: Any = reflection  # its type stubs lack the asyncio part
            self._reflection = module.aio.ReflectionServicer([*names, HEALTH, REFLECTION])
        self._deadlines: dict[asyncio.Timeout, None] = {}
        self.is_serving = True

    def build_handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the gRPC handlers."""
        methods = {"Check": self._limit(self._check), "Watch": self._limit(self._watch)}
        found = [grpc.method_handlers_generic_handler(HEALTH, methods)]
        if self._reflects:
            methods = {"ServerReflectionInfo": self._limit(self._reflect)}
            found.append(grpc.method_handlers_generic_handler(REFLECTION, methods))
        return found

    def _limit(self, work: Callable[[Context], Awaitable[None]]) -> Any:
        async def run(_messages: object, context: Context) -> None:
            try:
                async with asyncio.timeout(_CALL_SECONDS) as deadline:
                    self._end_oldest()
                    self._deadlines[deadline] = None
                    try:
                        await work(context)
                    finally:
                        self._deadlines.pop(deadline, None)
            except TimeoutError:
                context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
                context.set_details("This call took too long, or there were too many.")
            except (BadRequest, DecodeError):
                context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
                context.set_details("The message is none of this method.")

        return grpc.stream_stream_rpc_method_handler(run)

    def _end_oldest(self) -> None:
        while len(self._deadlines) >= _MAX_CALLS:
            oldest = next(iter(self._deadlines))
            del self._deadlines[oldest]
            oldest.reschedule(0)

    async def _check(self, context: Context) -> None:
        data = await receive(context, None)
        request = HealthCheckRequest.FromString(await unpack(data or b"", _MAX_BYTES))
        if request.service not in self._names:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return
        states = HealthCheckResponse.ServingStatus
        status = states.SERVING if self.is_serving else states.NOT_SERVING
        await context.write(HealthCheckResponse(status=status).SerializeToString())

    async def _watch(self, context: Context) -> None:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Ask again by Check.")

    async def _reflect(self, context: Context) -> None:
        requests = _read_requests(context)
        async with (
            aclosing(requests),
            aclosing(self._reflection.ServerReflectionInfo(requests, context)) as answers,
        ):
            async for one in answers:
                await context.write(one.SerializeToString())


async def _read_requests(context: Context) -> AsyncGenerator[ServerReflectionRequest, None]:
    while (data := await receive(context, None)) is not None:
        yield ServerReflectionRequest.FromString(await unpack(data, _MAX_BYTES))
