"""Builds what decides who comes in, how much they may do, and what writes it down."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.audit.request import RequestAudit
from copilot_runtime.extensions.access.audit.run import RunAudit

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.audit.log import AuditLog
    from copilot_runtime.extensions.access.authentication.chain import SchemeChain
    from copilot_runtime.extensions.access.limits.counters import Counters
    from copilot_runtime.extensions.access.limits.limiter import Limiter
    from copilot_runtime.extensions.access.limits.redis import RedisCounters


def build_audit_log(settings: Settings) -> "AuditLog | None":
    """Return the audit log of the settings, if they name a file; it is not opened yet."""
    section = settings.audit
    if not section.file:
        return None
    from copilot_runtime.extensions.access.audit.log import AuditLog

    return AuditLog(
        section.file,
        key=section.key,
        max_bytes=section.max_bytes,
        max_files=section.max_files,
    )


def build_run_audit(settings: Settings, log: "AuditLog | None") -> RunAudit | None:
    """Return what writes down runs, if there is an audit log."""
    return None if log is None else RunAudit(log, content=settings.audit.content)


def build_request_audit(settings: Settings, log: "AuditLog | None") -> RequestAudit | None:
    """Return what writes down requests, if there is an audit log."""
    if log is None:
        return None
    return RequestAudit(log, reads=settings.audit.reads, proxies=settings.proxy.forwarders)


def build_counters(settings: Settings) -> "RedisCounters | None":
    """Return where all processes count together, if the settings name it; else each by itself.

    Raises `MissingPackage`.
    """
    if settings.limits.store == "memory":
        return None
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    return RedisCounters(settings.limits.store)


def build_limiter(settings: Settings, counters: "Counters | None") -> "Limiter | None":
    """Return what counts by the limits of the settings, if there are any.

    Raises `MissingPackage`.
    """
    from copilot_runtime.adapters.pricing import find_price
    from copilot_runtime.extensions.access.limits.limiter import Limiter

    limiter = Limiter(settings.limits, counters, price=find_price)
    if limiter.counts_dollars and find_spec("genai_prices") is None:
        raise MissingPackage("A limit of dollars", "genai-prices", "prices")
    return limiter if limiter.has_limits else None


def build_schemes(settings: Settings, counters: "RedisCounters | None") -> "SchemeChain | None":
    """Return how people and programs sign in by the settings, if they say so.

    Raises `ConfigurationFailed`.
    """
    if not settings.access.authenticate:
        return None
    from copilot_runtime.extensions.access.authentication.chain import build_chain
    from copilot_runtime.extensions.access.authentication.service_tokens import ServiceTokenScheme

    chain = build_chain(settings)
    services = chain.find_scheme(ServiceTokenScheme) if chain else None
    if counters is not None and isinstance(services, ServiceTokenScheme):
        from copilot_runtime.extensions.access.limits.redis import RedisReplays

        services.verifier.replays = RedisReplays(counters)
    return chain
