"""Lists what answers clients, and builds what listens beside HTTP."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.build import build_request_audit
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services, TransportLike

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.audit.log import AuditLog
    from copilot_runtime.extensions.access.limits.limiter import Limiter
    from copilot_runtime.extensions.grpc.server import GrpcServer


def list_transports(
    transports: Sequence[TransportLike] | None, settings: Settings
) -> Sequence[TransportLike]:
    """Return those given, else those named in the settings, after those for other programs."""
    chosen = settings.transports if transports is None else transports
    programs = {
        "a2a": settings.serve_a2a,
        "mcp": settings.serve_mcp,
        "remote_endpoint": settings.serve_remote,
    }
    return [*dict.fromkeys([*(name for name, serves in programs.items() if serves), *chosen])]


def list_side_endpoints(services: Services) -> Sequence[str]:
    """Return the names of what is answered beside the transports."""
    parts = {
        "access": services.access is not None,
        "analyst": services.analyst is not None,
        "events": services.events is not None,
        "knowledge": services.knowledge is not None,
        "plans": services.plans is not None,
        "thread_push": services.thread_push is not None and services.thread_push.offers_sockets,
        "traces": True,
        "otlp": services.settings.telemetry.receives,
    }
    return [name for name, serves in parts.items() if serves]


def build_grpc_server(
    settings: Settings,
    services: Services,
    authenticator: Authenticator,
    *,
    has_users: bool,
    limiter: "Limiter | None",
    audit: "AuditLog | None",
) -> "GrpcServer | None":
    """Return what answers calls over gRPC, if the settings name services.

    Raises `MissingPackage`, `UnknownName`, and `ConfigurationFailed` for what cannot be offered.
    """
    if not settings.grpc.services:
        return None
    try:
        from copilot_runtime.extensions.grpc.server import GrpcServer
    except ImportError as error:
        raise MissingPackage("The setting grpc.services", error.name or "grpcio", "grpc") from error
    return GrpcServer(
        settings,
        services,
        authenticator=authenticator,
        telemetry=services.telemetry,
        has_users=has_users,
        limiter=limiter,
        audit=build_request_audit(settings, audit),
    )
