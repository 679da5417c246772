"""Distribute thread changes of all processes to the readers in this process."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from time import monotonic
from typing import Any

from copilot_runtime.api.bus import PeerLost
from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import has_running_loop
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.peers import Peers
from copilot_runtime.runtime.run import Run
from copilot_runtime.runtime.thread_changes.change import Notice, RunEvent
from copilot_runtime.runtime.thread_changes.feed import OwnerFeed
from copilot_runtime.runtime.thread_changes.interests import Interests
from copilot_runtime.runtime.thread_changes.reader import ChangeReader
from copilot_runtime.threads.store import ThreadKey, ThreadStore

WATCH = "watch threads"
"""Cluster request with which a process subscribes to the thread changes of owners."""

CHANGE_NOTICE = "thread changed"
"""Cluster message that tells subscribed processes of a changed thread."""

_PATIENCE = 1.5
"""Timeout of a subscription request, in seconds."""

_RENEWAL = 2.0
"""Seconds between two renewals of the subscriptions, which also detect lost notices."""

_LOOK = 30.0
"""Polling interval of the thread lists, in seconds: command-line tools change threads, too."""

_BLIND_LOOK = 2.0
"""Polling interval while some process cannot be subscribed to, in seconds."""

logger = logging.getLogger(__name__)


class ThreadChanges(RunObserver):
    """Sends changes of threads to the readers in this process.

    `note` takes changes made in this process; other processes are only notified of owners that they
    have subscribed to. Without readers in any process, `note` only checks two empty tables.
    """

    def __init__(
        self,
        store: ThreadStore,
        *,
        renewal: float = _RENEWAL,
        look: float = _LOOK,
        blind_look: float = _BLIND_LOOK,
    ) -> None:
        self.peers: Peers | None = None
        """The cluster of processes that share the store, or `None`."""
        self.is_ending: Callable[[], bool] = lambda: False
        """Returns `True` if the server waits for open streams to close."""
        self._store = store
        self._renewal = renewal
        self._look = look
        self._blind_look = blind_look
        self._feeds: dict[str, OwnerFeed] = {}
        self._interests = Interests()
        self._subscriptions: dict[str, set[str]] = {}
        """For each process, the owners that it is subscribed to for us."""
        self._received: Counter[str] = Counter()
        """Number of notices received from each process."""
        self._is_blind = False
        """`True` if some process cannot be subscribed to."""
        self._renewing = asyncio.Lock()
        self._upkeep: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def note(self, thread: ThreadKey, notice: Notice | None = None) -> None:
        """Record that this process has changed a thread. Never blocks."""
        if not self._feeds and not self._interests:
            return
        notice = notice or Notice(thread.id)
        if (feed := self._feeds.get(thread.owner)) is not None:
            feed.add(notice)
        if self.peers is not None:
            for server in self._interests.take(thread.owner):
                self.peers.tell(server, CHANGE_NOTICE, owner=thread.owner, notice=[*notice])

    def on_start(self, run: Run, event: RunStarted) -> None:
        self._note_run(run.request, event)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:  # noqa: ARG002
        self._note_run(run.request, event)

    def _note_run(self, run: RunInput, event: RunStarted | RunFinished | RunFailed) -> None:
        """Notify readers of the owner's threads that a run of this process started or ended."""
        if not self._feeds and not self._interests:
            return
        if run.persist and has_running_loop():
            notice = Notice(run.thread_id, _name(event), run.run_id, run.agent_name)
            self.note(ThreadKey.of(run.user, run.thread_id), notice)

    @asynccontextmanager
    async def follow(self, owner: str) -> AsyncGenerator[ChangeReader, None]:
        """Yield a reader of all later changes of an owner's threads. Raises `StoreFailed`."""
        reader = ChangeReader()
        feed = self._feeds.get(owner)
        if feed is None:
            feed = self._feeds[owner] = OwnerFeed(owner, self._store)
            self._start(self._announce(feed))
        feed.readers.add(reader)
        if self._is_closed:
            reader.close()
        elif self._upkeep is None or self._upkeep.done():
            self._upkeep = asyncio.create_task(
                self._keep_up(), name="watch threads", context=Context()
            )
        try:
            await feed.prime()
            yield reader
        finally:
            feed.readers.discard(reader)
            if not feed.readers and self._feeds.get(owner) is feed:
                del self._feeds[owner]
                feed.close()

    async def answer_watch(self, values: Mapping[str, Any]) -> Any:
        """Handle another process's subscription request."""
        server = str(values["address"])
        if values["whole"]:
            self._interests.forget(server)
        watching, sent = self._interests.renew(server, values["added"], values["removed"])
        return {"watching": watching, "sent": sent}

    def take_notice(self, sender: str, values: Mapping[str, Any]) -> None:
        """Handle another process's notice of a changed thread."""
        self._received[sender] += 1
        if (feed := self._feeds.get(str(values["owner"]))) is not None:
            feed.add(Notice(*values["notice"]))

    def open(self) -> None:
        """Accept readers again after `close`."""
        self._is_closed = False

    def close(self) -> None:
        """Close all readers when the server stops; clients reconnect to another one."""
        self._is_closed = True
        for task in (self._upkeep, *self._tasks):
            if task is not None:
                task.cancel()
        for feed in self._feeds.values():
            feed.close()

    async def _announce(self, feed: OwnerFeed) -> None:
        """Subscribe to an owner at other processes, then poll for changes made before that."""
        await self._renew()
        await self._look_at([feed])

    async def _keep_up(self) -> None:
        """Renew the subscriptions and poll the lists while there are readers."""
        looked_at = monotonic()
        while self._feeds:
            due = looked_at + (self._blind_look if self._is_blind else self._look)
            await asyncio.sleep(min(self._renewal, max(self._blind_look, due - monotonic())))
            if self.is_ending():
                self.close()
                return
            has_missed = await self._renew()
            now = monotonic()
            interval = self._blind_look if self._is_blind else self._look
            if has_missed or now >= looked_at + interval:
                await self._look_at([*self._feeds.values()])
                looked_at = monotonic()

    async def _look_at(self, feeds: Sequence[OwnerFeed]) -> None:
        for feed in feeds:
            try:
                await feed.look()
            except (
                CopilotError
            ) as error:  # raised by the store, which may be reachable at the next poll
                logger.warning("Threads cannot be listed for their readers: %s", error.message)
                return

    async def _renew(self) -> bool:
        """Renew the subscriptions at all processes. Returns `True` if notices were lost."""
        async with self._renewing:
            try:
                others = await self._store.list_other_servers()
            except CopilotError:
                self._is_blind = True
                return True
            missing = self._subscriptions.keys() - others
            for server in missing:
                del self._subscriptions[server]
                del self._received[server]
            states = await asyncio.gather(*map(self._renew_at, others))
            self._is_blind = any(state is None for state in states)
            return bool(missing) or any(states)

    async def _renew_at(self, server: str) -> bool | None:
        """Renew the subscription at one process.

        Returns `True` if notices were lost or the process has died and left runs to end, and `None`
        if it is alive but cannot be subscribed to.
        """
        if self.peers is None or not self.peers.address:
            return None if await self._is_alive(server) else True
        is_new = server not in self._subscriptions
        previous = self._subscriptions.setdefault(server, set())
        owners = {*self._feeds}
        answer = await self._ask(server, owners - previous, previous - owners, whole=is_new)
        if answer is not None and answer["watching"] != len(owners):
            answer = await self._ask(server, owners, set(), whole=True)
        if answer is None:
            self._subscriptions.pop(server, None)
            return None if await self._is_alive(server) else True
        self._subscriptions[server] = owners
        has_missed = is_new or answer["sent"] != self._received[server]
        self._received[server] = answer["sent"]
        return has_missed

    async def _ask(
        self, server: str, added: set[str], removed: set[str], *, whole: bool
    ) -> Mapping[str, Any] | None:
        assert self.peers is not None
        try:
            answer = await self.peers.ask(
                server,
                WATCH,
                timeout=_PATIENCE,
                address=self.peers.address,
                added=[*added],
                removed=[*removed],
                whole=whole,
            )
        except PeerLost:
            return None
        return (
            answer if isinstance(answer, dict) else None
        )  # an older version does not support the request

    async def _is_alive(self, server: str) -> bool:
        try:
            return await self._store.is_alive(server)
        except CopilotError:
            return True

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, context=Context())  # outside of any request's context
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _name(event: RunStarted | RunFinished | RunFailed) -> RunEvent:
    match event:
        case RunStarted():
            return "RUN_STARTED"
        case RunFinished():
            return "RUN_FINISHED"
        case RunFailed():
            return "RUN_ERROR"
