"""Ids of tasks: a task is the run of a thread, and its id says of which."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import NamedTuple

from copilot_runtime.base.jsontext import dumps

_RUN_BYTES = 16


class TaskKey(NamedTuple):
    """The thread of a task, and the id that all its runs have.

    A task that waits for an answer goes on with another run of the same id.
    """

    thread_id: str
    run_id: str

    @property
    def task_id(self) -> str:
        """The id for clients. Whoever knows it still has to be the owner of the thread."""
        data = bytes.fromhex(self.run_id) + self.thread_id.encode()
        return urlsafe_b64encode(data).decode().rstrip("=")


def derive_id(*source: str | None) -> str:
    """Return an id, as runs of tasks have it, that is the same for the same source."""
    return blake2b(dumps(source), digest_size=_RUN_BYTES).hexdigest()


def parse_task_id(task_id: str) -> TaskKey | None:
    """Return what an id says, or None for one that is none of ours."""
    try:
        data = urlsafe_b64decode(f"{task_id}{'=' * (-len(task_id) % 4)}")
        thread_id = data[_RUN_BYTES:].decode()
    except (Error, ValueError):
        return None
    if not thread_id:
        return None
    return TaskKey(thread_id, data[:_RUN_BYTES].hex())
