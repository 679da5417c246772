"""Builds authentication, limits and the audit log from settings."""

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
    """Return the unopened audit log, or `None` if the settings name no file."""
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
    """Return the audit of runs, or `None` without an audit log."""
    return None if log is None else RunAudit(log, content=settings.audit.content)


def build_request_audit(settings: Settings, log: "AuditLog | None") -> RequestAudit | None:
    """Return the audit of requests, or `None` without an audit log."""
    if log is None:
        return None
    return RequestAudit(log, reads=settings.audit.reads, proxies=settings.proxy.forwarders)


def build_counters(settings: Settings) -> "RedisCounters | None":
    """Return the counters in Redis, or `None` if each process counts in its memory.

    Raises `MissingPackage`.
    """
    if settings.limits.store == "memory":
        return None
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    return RedisCounters(settings.limits.store)


def build_limiter(settings: Settings, counters: "Counters | None") -> "Limiter | None":
    """Return the limiter, or `None` if the settings have no limits. Raises `MissingPackage`."""
    from copilot_runtime.adapters.pricing import find_price
    from copilot_runtime.extensions.access.limits.limiter import Limiter

    limiter = Limiter(settings.limits, counters, price=find_price)
    if limiter.counts_dollars and find_spec("genai_prices") is None:
        raise MissingPackage("A limit of dollars", "genai-prices", "prices")
    return limiter if limiter.has_limits else None


def build_schemes(settings: Settings, counters: "RedisCounters | None") -> "SchemeChain | None":
    """Return the authentication schemes, or `None` if the settings name none.

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
