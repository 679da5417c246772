"""Start background runs, and deliver a webhook at the end of each, at least once."""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

from copilot_runtime.api.events import Interrupt, RunFailed, RunFinished
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import Cancelled, ConfigurationFailed, NetworkError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, drop_none
from copilot_runtime.base.outages import log_failures
from copilot_runtime.extensions.webhooks.sender import Unreachable, WebhookSender
from copilot_runtime.extensions.webhooks.settings import WebhookSettings
from copilot_runtime.http.errors import get_origin
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.threads.outbox import Claim, Outbox, OutboxEntry
from copilot_runtime.threads.store import StoredRun, ThreadKey

logger = logging.getLogger("copilot_runtime.webhooks")

LEASE = 60.0
"""Seconds for which a process that claimed a webhook keeps it; then another may take it over."""

_POLL = 10.0
"""Seconds between two searches for webhooks that are due."""

DELAYS = (10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 24 * 3600.0)
"""Seconds between attempts, after the last of which a webhook is given up."""

_LOST_AFTER = 24 * 3600.0
"""Seconds after which a webhook is deleted whose run is nowhere."""

_LIFETIME = sum(DELAYS)
"""Seconds from the end of its run after which a webhook is given up, whatever it has waited for."""

_SLOTS = 20
"""Maximum number of webhooks that a process delivers concurrently."""

SHARE = 5
"""Maximum number of them that are of one owner, or without sign-in for one origin."""

_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook, and the run of which it is the end. `id` is the same for each attempt."""

    id: str
    url: str
    owner: str
    thread: str
    run: str
    log: str
    agent: str
    created: float
    ended: float = 0.0
    """The time when the run was seen to have ended."""
    attempts: int = 0

    def encode(self) -> OutboxEntry:
        return OutboxEntry(self.id, self.owner or get_origin(self.url), dumps(asdict(self)))


class _Outage(NamedTuple):
    """An origin that was not reached in `attempts`, and gets nothing until a time."""

    attempts: int
    until: float


class Webhooks:
    """Starts background runs, and delivers their webhooks. All processes of a store share them."""

    def __init__(self, outbox: Outbox, settings: WebhookSettings) -> None:
        self._outbox = outbox
        self._sender = WebhookSender(settings)
        self._conversations: Conversations | None = None
        self._ended: list[Webhook] = []
        self._outages: dict[str, _Outage] = {}
        """The origins that cannot be reached: others shall not wait for them."""
        self._deliveries: dict[asyncio.Task[None], str] = {}
        """The deliveries under way, with their owners."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self, conversations: Conversations) -> None:
        """Begin to deliver webhooks, also those that a stopped process has left."""
        self._conversations = conversations
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="webhooks", context=Context())

    async def aclose(self) -> None:
        """Stop deliveries; an interrupted one is repeated."""
        if self._task is not None:
            tasks = [self._task, *self._deliveries]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._task = None

    async def start(self, conversations: Conversations, request: RunInput, url: str) -> bool:
        """Start a run whose end is posted to a URL.

        Returns `False` if the request repeats an earlier one, whose run posts its end already.
        Raises `Misuse` for a URL that is not allowed, and the errors of `Conversations.start`.
        """
        self._sender.check_url(url)
        now = time.time()
        webhook = Webhook(
            id=f"msg_{uuid4().hex}",
            url=url,
            owner=request.user or "",
            thread=request.thread_id,
            run=request.run_id,
            log=request.log_id,
            agent=request.agent_name,
            created=now,
        )
        await self._outbox.add(webhook.encode(), now + LEASE)  # first: a started run has a webhook
        run = None
        try:
            run, log = await conversations.start_once(request)
            await log.aclose()
        finally:
            if run is None:
                await self._outbox.delete(webhook.id)
        if run is not None:
            run.ended.add_done_callback(lambda _: self._note_end(webhook))
        return run is not None

    def _note_end(self, webhook: Webhook) -> None:
        self._ended.append(replace(webhook, ended=time.time()))
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            with log_failures(logger, "The webhooks are delivered later"):
                await self._deliver_due()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._wake.wait()

    async def _deliver_due(self) -> None:
        now = time.time()
        while self._ended:
            await self._outbox.update(self._ended[0].encode(), now)
            del self._ended[0]  # not the last one: another run may have ended meanwhile
        if not (free := _SLOTS - len(self._deliveries)):
            return
        counts = Counter(self._deliveries.values())
        busy = [owner for owner, count in counts.items() if count >= SHARE]
        claim = Claim(now, now + LEASE, free, SHARE, busy)
        for entry in await self._outbox.claim(claim):
            task = asyncio.create_task(self._deliver(entry), name=f"webhook:{entry.id}")
            self._deliveries[task] = entry.owner
            task.add_done_callback(self._note_delivery)

    def _note_delivery(self, task: asyncio.Task[None]) -> None:
        del self._deliveries[task]
        self._wake.set()

    async def _deliver(self, entry: OutboxEntry) -> None:
        """Deliver a claimed webhook if its run has ended. Errors are logged."""
        with log_failures(logger, "The webhook %s is delivered later", entry.id):
            webhook = Webhook(**loads(entry.data))
            if webhook.ended and await self._postpone(webhook):
                return
            run = await self._find_run(webhook)
            if run is not None and run.ended:
                webhook = replace(webhook, ended=webhook.ended or time.time())
                await self._post(webhook, dumps(build_message(webhook, run)))
            elif run is None and time.time() > webhook.created + _LOST_AFTER:
                await self._outbox.delete(webhook.id)  # of a deleted thread, or a lost start

    async def _find_run(self, webhook: Webhook) -> StoredRun | None:
        """Return the run from the store; it is ended if its process has died."""
        assert self._conversations is not None, "deliveries begin with open"
        thread = ThreadKey(webhook.owner, webhook.thread)
        for _ in range(2):
            runs = await self._conversations.runs(thread)
            run = next((run for run in runs if run.log_id == webhook.log), None)
            if run is None or run.ended:
                return run
            if not await self._conversations.store.end_dead_run(thread, webhook.log):
                return run
        return None

    async def _postpone(self, webhook: Webhook) -> bool:
        """Return whether the origin cannot be reached now; then the webhook waits, or is given up.

        Waiting is no attempt: a receiver that is away for long is not asked for each webhook.
        """
        outage = self._outages.get(get_origin(webhook.url))
        if outage is None or outage.until <= time.time():
            return False
        if _is_late(webhook):
            await self._give_up(webhook, "it cannot be reached")
        else:
            await self._outbox.update(webhook.encode(), outage.until)
        return True

    async def _give_up(self, webhook: Webhook, reason: str) -> None:
        origin = get_origin(webhook.url)
        logger.error("Gave up the webhook %s to %s: %s", webhook.id, origin, reason)
        await self._outbox.delete(webhook.id)

    async def _post(self, webhook: Webhook, body: bytes) -> None:
        is_final = len(DELAYS) <= webhook.attempts or _is_late(webhook)
        origin = get_origin(webhook.url)
        try:
            status = await self._sender.send(webhook.url, webhook.id, body)
            reason = f"it answered {status}"
            self._outages.pop(origin, None)
            if 200 <= status < 300:
                await self._outbox.delete(webhook.id)
                return
            is_final |= status == _GONE
        except NetworkError as error:
            reason = error.message
            if isinstance(error, Unreachable):
                self._note_outage(origin)
        except ConfigurationFailed as error:
            reason, is_final = f"{error.message} {error.hint}", True
        if is_final:
            await self._give_up(webhook, reason)
            return
        delay = DELAYS[webhook.attempts]
        later = replace(webhook, attempts=webhook.attempts + 1)
        await self._outbox.update(later.encode(), time.time() + delay)
        logger.warning(
            "The webhook %s to %s failed, and is repeated in %g s: %s",
            *(webhook.id, origin, delay, reason),
        )

    def _note_outage(self, origin: str) -> None:
        """Send nothing to an origin for a while, which is longer after each attempt in vain."""
        now, pauses = time.time(), DELAYS[:3]
        self._outages = {
            one: outage for one, outage in self._outages.items() if outage.until > now - pauses[-1]
        }
        before = self._outages.get(origin, _Outage(0, 0.0))
        if before.until <= now:
            pause = pauses[min(before.attempts, len(pauses) - 1)]
            self._outages[origin] = _Outage(before.attempts + 1, now + pause)


def _is_late(webhook: Webhook) -> bool:
    return time.time() >= webhook.ended + _LIFETIME


def build_message(webhook: Webhook, run: StoredRun) -> JsonObject:
    """Return the body of a webhook: the outcome of a run, its answer, and its identifiers."""
    last = run.events[-1]
    questions = [
        {"id": event.interrupt_id, "reason": event.reason, "message": event.message}
        for event in run.events
        if isinstance(event, Interrupt)
    ]
    error: dict[str, Any] | None = None
    result: Any = None
    match last:
        case RunFailed(error=report):
            outcome = "stopped" if report.code == Cancelled.code else "failed"
            error = {"code": report.code, "message": report.message}
        case RunFinished():
            outcome, result = "waiting" if questions else "finished", last.result
        case _:
            outcome = "failed"
    texts = [
        message.content
        for message in fold_messages(run.events)
        if isinstance(message, TextMessage) and message.role == "assistant" and message.content
    ]
    data = {
        "threadId": webhook.thread,
        "runId": webhook.run,
        "agent": webhook.agent,
        "user": webhook.owner or None,
        "answer": "\n\n".join(texts),
        "result": result,
        "interrupts": questions or None,
        "error": error,
    }
    return {"type": f"run.{outcome}", "data": drop_none(data)}
