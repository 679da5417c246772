"""A suite: the servers that are compared with each other, and what was promised of ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.streaming.clients import Client
from benchmarks.streaming.verdict import Promise

Prepare = Callable[[], str]
"""Installs what a target needs. Returns why it cannot run, or ""."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server: the client it expects, where chats are posted, and how it is started.

    The command finds PORT, MOCK_URL, MOCK_HOSTPORT and TARGET_DIR (a folder of its own) in its
    environment, and {PORT} in its words. Without a command the client talks to the mock itself.
    An optional target that cannot run is no failure.
    """

    client: Client
    path: str
    command: Sequence[str] = ()
    prepare: Prepare | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What one runner measures; `peers` are the targets that tables compare with."""

    module: str
    targets: Mapping[str, Target]
    chosen: Sequence[str]
    peers: Sequence[str]
    promises: Sequence[Promise]
    out: Path
