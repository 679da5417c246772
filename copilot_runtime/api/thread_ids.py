"""The ids of threads where users are not known."""

import hmac
from dataclasses import dataclass, field
from uuid import UUID, uuid5


@dataclass(frozen=True, slots=True)
class ThreadIds:
    """The ids of threads where users are not known, such as in a remote agent.

    `has_users` is whether people can sign in; else an id is kept. The `secret` keeps people who
    know a user and a thread from computing the id. Without it, ids are those that agents got
    before there were secrets.
    """

    has_users: bool = False
    secret: bytes = field(default=b"", repr=False)
    task: str = ""
    """The task of a plan, whose agent has a thread of its own; every server derives the same."""

    def derive(self, user: str | None, thread_id: str) -> str:
        """Return a UUID that differs for two users, and for nobody, with the same `thread_id`."""
        if self.task:
            return str(uuid5(_THREADS, f"{self.task}\0{thread_id}"))
        if user is None and not self._derives_for_nobody(thread_id):
            return thread_id
        name = f"{user or ''}\0{thread_id}"
        if not self.secret:
            return str(uuid5(_THREADS, name))
        digest = hmac.digest(self.secret, name.encode(errors="surrogatepass"), "sha256")
        return str(UUID(bytes=digest[:16], version=5))

    def _derives_for_nobody(self, thread_id: str) -> bool:
        """Return whether nobody's thread has an id of its own: it must be none of a user."""
        return self.has_users and (bool(self.secret) or _is_derived(thread_id))


_THREADS = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")


def _is_derived(thread_id: str) -> bool:
    """Return whether an id might be one that `ThreadIds` derived, however it is spelled."""
    try:
        return UUID(thread_id).version == 5
    except ValueError:
        return False
