"""Authentication, API keys, limits, and the audit log."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from copilot_runtime.adapters.context_window import count_characters
from copilot_runtime.api.events import (
    Events,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.messages import (
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.run_input import CURRENT_RUN, RunInput, RunSlot
from copilot_runtime.app.extension import Contribution, Core, Extension, PrivateState
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.access.api_keys.store import choose_address
from copilot_runtime.extensions.access.audit.command import build_audit_log, record_command
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.extensions.access.audit.record import RequestAudit, RunAudit, record_dead_run
from copilot_runtime.extensions.access.authentication import build_chain
from copilot_runtime.extensions.access.http.endpoint import AccessEndpoint, AccessReport
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.access.limits.storage import StorageLimits
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run
from copilot_runtime.security.schemes import SchemeChain
from copilot_runtime.threads.store import DeadRun
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import RequestPolicy

if TYPE_CHECKING:
    from copilot_runtime.extensions.access.limits.counters import Counters
    from copilot_runtime.extensions.access.limits.redis import RedisCounters


class AccessExtension(Extension):
    """Authenticates callers, enforces limits, and writes the audit log."""

    name = "access"
    requires = ("tracing",)
    opens = "first"  # fail before other extensions open resources if authentication is unusable

    def build(self, core: Core) -> Contribution:
        settings = narrow_settings(core.settings)
        self._audit = build_audit_log(settings)
        self._counters = build_counters(settings)
        storage = build_storage_limits(settings, core)
        self._limiter = build_limiter(settings, self._counters, storage)
        self._schemes = build_schemes(settings, self._counters)
        has_users = core.has_hook or self._schemes is not None
        core.has_users = has_users
        core.streams_per_user = settings.limits.thread_streams_per_user
        core.guard.has_login = has_users and not settings.access.anonymous
        report = AccessReport(
            settings,
            schemes=self._schemes,
            limiter=self._limiter,
            storage=storage,
            has_hook=core.has_hook,
        )
        found: dict[type, object] = {AccessReport: report}
        observers: list[RunObserver] = []
        policies: list[RequestPolicy] = []
        if self._schemes is not None:
            found[SchemeChain] = self._schemes
        if self._limiter is not None:
            found[Limiter] = self._limiter
            observers.append(RunLimits(self._limiter))
            policies.append(RequestLimits(self._limiter))
        if storage is not None:
            observers.append(RunStorage(storage))
        if self._audit is not None:
            run_audit = RunAudit(self._audit, content=settings.audit.content)
            core.threads.on_dead_run = run_audit.feed_dead_run
            request_audit = RequestAudit(
                self._audit, reads=settings.audit.reads, proxies=settings.proxy.forwarders
            )
            found |= {AuditLog: self._audit, RequestAudit: request_audit}
            observers.append(run_audit)
            policies.append(request_audit)
        return Contribution(
            parts=found,
            stages=[] if storage is None else [StorageNotices(storage)],
            observers=observers,
            policies=policies,
            endpoints=[AccessEndpoint],
            page="/access" if has_users else "",
        )

    async def open(self) -> None:
        if self._audit is not None:
            await asyncio.to_thread(self._audit.check)
        if self._schemes is not None:
            await self._schemes.open()
        if self._counters is not None:
            await self._counters.open()

    async def aclose(self) -> None:
        for part in (self._schemes, self._limiter, self._counters, self._audit):
            if part is not None:
                await part.aclose()

    def find_failing_checks(self) -> Sequence[str]:
        return () if self._counters is None else self._counters.find_failing_checks()

    def name_stores(self, settings: CoreSettings, threads: str) -> Mapping[str, Any]:
        if threads == settings.threads:
            return {}
        chosen = narrow_settings(settings)  # keys are where the settings say
        keys = chosen.api_keys.model_copy(update={"store": choose_address(chosen)})
        return {"api_keys": keys}

    def list_private_state(self, settings: CoreSettings) -> Sequence[PrivateState]:
        section, workers = narrow_settings(settings).limits, settings.workers
        # streams are limited in each process, and storage is counted in the stores
        own = {"store", "thread_streams_per_user", "storage_per_user", "storage_per_tenant"}
        names = [name for name, value in section.model_dump(exclude=own).items() if value]
        if section.store != "memory" or not names:
            return []
        limits = ", ".join(f"limits.{name}" for name in names)
        text = (
            f"Each of {workers} workers counts for itself, so {workers} times as much gets "
            f"through: {limits}."
            if workers > 1
            else "Servers that share these threads in PostgreSQL count each for itself, so as many "
            f"times as much gets through: {limits}."
        )
        hint = "Set limits.store to redis://..., where all count together."
        return [PrivateState("limits", text, hint)]

    def record_command(self, settings: CoreSettings, action: str, subject: str) -> None:
        record_command(narrow_settings(settings), action, subject)

    def record_dead_run(self, settings: CoreSettings, run: DeadRun) -> None:
        record_dead_run(narrow_settings(settings), run)


class RunLimits(RunObserver):
    """Admits runs within the limits, and gives them the budget of their caller."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def admit(self, run: Run) -> None:
        request = run.request
        release = await self._limiter.admit_run(
            request.identity,
            request.user,
            run.log_id,
            is_continuation=_is_continuation(request),
        )
        run.ended.add_done_callback(lambda _: release())
        if self._limiter.has_budgets:
            budget = self._limiter.open_budget(request.identity, request.user, request.budget)
            run.request = copy_with(request, budget=budget)


class RunStorage(RunObserver):
    """Admits runs of callers that may store more."""

    def __init__(self, limits: StorageLimits) -> None:
        self._limits = limits

    async def admit(self, run: Run) -> None:
        request = run.request
        release = await self._limits.admit(
            request.identity,
            request.user,
            is_continuation=_is_continuation(request),
            size=sum(map(_measure, request.messages[-1:])),  # a client repeats the others
        )
        run.ended.add_done_callback(lambda _: release())


class StorageNotices:
    """A stage that tells a user once, before an answer, that the storage is nearly full."""

    def __init__(self, limits: StorageLimits) -> None:
        self._limits = limits

    def __call__(self, events: Events, run: RunInput) -> Events:
        notice = self._limits.take_notice(run.user)
        return _prepend_text(events, notice) if notice else events


async def _prepend_text(events: Events, text: str) -> Events:
    id = new_id()
    async with aclosing(events):
        yield TextMessageStart(message_id=id)
        yield TextMessageContent(message_id=id, content=text)
        yield TextMessageEnd(message_id=id)
        async for event in events:
            yield event


class RequestLimits(RequestPolicy):
    """Refuses requests beyond the limits, and bounds what requests use outside of runs."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def before(self, request: Request) -> None:
        caller = request.caller
        if self._limiter.has_budgets:
            budget = self._limiter.open_budget(caller.identity, caller.user)
            CURRENT_RUN.set(RunSlot(None, budget))
        await self._limiter.check_request(caller.identity)


def _measure(message: Message) -> int:
    """Return about how many bytes a message takes, with its attachments."""
    if isinstance(message, ImageMessage):
        return len(message.bytes)
    parts = message.parts if isinstance(message, TextMessage | ResultMessage) else ()
    media = sum(len(part.value) for part in parts if isinstance(part, MediaPart))
    return count_characters(message) + media


def _is_continuation(request: RunInput) -> bool:
    """Return whether a request continues an answer: after an action, or a person's answer."""
    kinds = (TextMessage, ImageMessage, ResultMessage)
    last = next((one for one in reversed(request.messages) if isinstance(one, kinds)), None)
    return bool(request.resume) or isinstance(last, ResultMessage)


def build_counters(settings: Settings) -> "RedisCounters | None":
    """Return where all processes count together, if the settings name it; else each by itself.

    Raises `MissingPackage`.
    """
    if settings.limits.store == "memory":
        return None
    from copilot_runtime.extensions.access.limits.redis import RedisCounters

    return RedisCounters(settings.limits.store)


def build_limiter(
    settings: Settings, counters: "Counters | None", storage: StorageLimits | None
) -> "Limiter | None":
    """Return the limiter for the limits in the settings, or `None` if no limit is set.

    Raises `MissingPackage` if a limit of dollars needs the package for prices.
    """
    limiter = Limiter(settings.limits, counters, storage and storage.admit)
    if limiter.counts_dollars and find_spec("genai_prices") is None:
        raise MissingPackage("A limit of dollars", "genai-prices", "prices")
    return limiter if limiter.has_limits else None


def build_storage_limits(settings: Settings, core: Core) -> StorageLimits | None:
    """Return the limits on storage in the settings, or `None` if there is none."""
    section = settings.limits
    has_limits = section.storage_per_user or section.storage_per_tenant
    return StorageLimits(section, core) if has_limits else None


def build_schemes(settings: Settings, counters: "RedisCounters | None") -> "SchemeChain | None":
    """Return the authentication schemes of the settings, or `None` if none is configured.

    Raises `ConfigurationFailed`.
    """
    if not settings.access.authenticate:
        return None
    from copilot_runtime.extensions.access.authentication.service_tokens import ServiceTokenScheme

    chain = build_chain(settings)
    services = chain.find_scheme(ServiceTokenScheme) if chain else None
    if counters is not None and isinstance(services, ServiceTokenScheme):
        from copilot_runtime.extensions.access.limits.redis import RedisReplays

        services.verifier.replays = RedisReplays(counters)
    return chain
