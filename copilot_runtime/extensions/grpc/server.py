"""Listens for calls, and has the services that settings name, health and reflection."""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.audit.request import RequestAudit
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.grpc import RPC_SERVICES
from copilot_runtime.extensions.grpc.calls import CallGate
from copilot_runtime.extensions.grpc.public import PublicServices
from copilot_runtime.extensions.grpc.service import RpcService
from copilot_runtime.extensions.grpc.settings import GrpcSettings
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services
from grpc.aio import Server

logger = logging.getLogger(__name__)

_KEEPALIVE_MS = 30_000
_LEAST_PING_MS = 10_000
_MOST_METADATA = 32 * 1024
_COMPRESSIONS = 0b101
"""None, and gzip, which `unpack` bounds. Deflate is refused: it cannot be told from a message."""


class GrpcServer:
    """Serves services of a runtime, from `open` to `aclose`, in one event loop."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        *,
        authenticator: Authenticator,
        telemetry: Telemetry,
        has_users: bool,
        limiter: Limiter | None = None,
        audit: RequestAudit | None = None,
    ) -> None:
        """Raises `ConfigurationFailed` for services that cannot be offered."""
        self._settings = settings
        self._options = settings.grpc
        check_access(self._options, has_users=has_users)
        self.services = build_rpc_services(self._options.services, services)
        self._gate = CallGate(
            authenticator=authenticator,
            telemetry=telemetry,
            limiter=limiter,
            audit=audit,
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
        """Whether other workers of the same server listen at the same address."""
        self.port = 0
        """The port that is listened on; 0 for a Unix socket."""

    @property
    def address(self) -> str:
        """Where the services are, for people."""
        scheme = "grpcs" if self._options.certificate else "grpc"
        if self._options.address.startswith("unix:"):
            return self._options.address
        return f"{scheme}://{self._options.address.rpartition(':')[0]}:{self.port}"

    async def open(self) -> None:
        """Listen. Raises `ConfigurationFailed` for an address that cannot be listened on."""
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
                f"Nobody can listen on {self._options.address!r} for gRPC: {error}",
                hint="Set grpc.address to another one, or stop who has it.",
            ) from error
        await server.start()
        self._server = server
        names = [one.descriptor.full_name for one in self.services]
        logger.info("Services over gRPC at %s: %s", self.address, ", ".join(names))

    async def aclose(self) -> None:
        """Take no more calls, let those under way end, and stop those that do not."""
        server, self._server = self._server, None
        if server is None:
            return
        self._is_closing, self._public.is_serving = True, False
        await server.stop(self._settings.stop_timeout)

    def _list_options(self) -> Sequence[tuple[str, Any]]:
        limit = self._settings.max_body_bytes
        return [
            ("grpc.max_receive_message_length", limit),
            ("grpc.per_message_decompression", 0),  # it has no limit: `unpack` has
            ("grpc.compression_enabled_algorithms_bitset", _COMPRESSIONS),
            ("grpc.max_send_message_length", -1),  # what is sent, we have made
            ("grpc.max_metadata_size", _MOST_METADATA),
            # else a second server on the same port would get every other call, and nobody an error
            ("grpc.so_reuseport", int(self.shares_port)),
            # else the window of a call that nobody reads grows to the size of any message
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
    """Raise `ConfigurationFailed` for services that every stranger could call.

    What travels in the clear over a network is only worth a warning: there may be a mesh.
    """
    if options.is_local:
        return
    if not (has_users or options.client_ca):
        raise ConfigurationFailed(
            f"grpc.address is {options.address!r}, and whoever reaches it could call the services.",
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
    """Return what TLS needs, from files in PEM. Raises `ConfigurationFailed`."""
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
