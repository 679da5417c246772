"""Task identifiers: a task is a run of a thread, and its identifier contains both."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import NamedTuple

from copilot_runtime.base.jsontext import dumps

_RUN_BYTES = 16


class TaskKey(NamedTuple):
    """The thread of a task, and the identifier that all its runs share.

    A task that waits for input continues with another run of the same identifier.
    """

    thread_id: str
    run_id: str

    @property
    def task_id(self) -> str:
        """The public identifier.

        Knowing it does not grant access: the caller must own the thread.
        """
        data = bytes.fromhex(self.run_id) + self.thread_id.encode()
        return urlsafe_b64encode(data).decode().rstrip("=")


def derive_id(*source: str | None) -> str:
    """Return a run identifier for tasks that is the same for the same source."""
    return blake2b(dumps(source), digest_size=_RUN_BYTES).hexdigest()


def parse_task_id(task_id: str) -> TaskKey | None:
    """Return the key in a task identifier, or None if it is malformed."""
    try:
        data = urlsafe_b64decode(f"{task_id}{'=' * (-len(task_id) % 4)}")
        thread_id = data[_RUN_BYTES:].decode()
    except (Error, ValueError):
        return None
    if not thread_id:
        return None
    return TaskKey(thread_id, data[:_RUN_BYTES].hex())
