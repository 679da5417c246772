"""Several server processes on one store: each answers for the runs of the others."""

import socket
from collections.abc import Sequence

from copilot_runtime.api.bus import Carrier
from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.extensions.cluster.carriers.unix import UnixCarrier
from copilot_runtime.extensions.cluster.peers import Peers
from copilot_runtime.extensions.settings import Settings, narrow_settings
from copilot_runtime.runtime.thread_changes.changes import CHANGE_NOTICE, WATCH
from copilot_runtime.threads.store import ThreadStore
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services


class ClusterExtension(Extension):
    """Connects the processes that share a store, by the setting `carrier`."""

    name = "cluster"

    def build(self, core: Core) -> Contribution:  # noqa: ARG002  # the interface's
        self._peers: Peers | None = None
        return Contribution()

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:  # noqa: ARG002
        carrier = build_carrier(narrow_settings(core.settings), core.threads)
        if carrier is None:
            return
        conversations, changes = core.conversations, core.changes
        self._peers = Peers(
            carrier,
            core.threads,
            conversations.runtime.open_log,
            {
                "stop": conversations.answer_stop,
                "stop new": conversations.answer_stop_new,
                "clear": conversations.answer_clear,
                "end": conversations.answer_end,
                "find": conversations.answer_find,
                "stop log": conversations.answer_stop_log,
                WATCH: changes.answer_watch,
            },
        )
        self._peers.add_notice(CHANGE_NOTICE, changes.take_notice)
        conversations.peers = changes.peers = self._peers

    async def open(self) -> None:
        if self._peers is not None:
            await self._peers.open()

    def find_failing_checks(self) -> Sequence[str]:
        return () if self._peers is None or self._peers.is_reachable else ("carrier",)


def build_carrier(settings: Settings, threads: ThreadStore) -> Carrier | None:
    """Return the carrier between processes that share a store, or `None` if it cannot be shared."""
    if settings.carrier == "none":
        return None
    if settings.carrier != "auto":
        from copilot_runtime.extensions.cluster.carriers.redis import RedisCarrier

        return RedisCarrier(settings.carrier)
    if threads.shared_file is not None and hasattr(socket, "AF_UNIX"):
        return UnixCarrier(threads.shared_file)
    if threads.shared_url:
        from copilot_runtime.extensions.cluster.carriers.postgres import PostgresCarrier

        return PostgresCarrier(threads.shared_url)
    return None
