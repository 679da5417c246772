"""Thread ids for systems that do not know users."""

import hmac
from dataclasses import dataclass, field
from uuid import UUID, uuid5


@dataclass(frozen=True, slots=True)
class ThreadIds:
    """Derives thread ids for systems that do not know users, such as remote agents.

    Without `has_users` (no authentication), ids are unchanged. The `secret` prevents others who
    know user and thread from computing the id; without it, ids are derived by a plain hash.
    """

    has_users: bool = False
    secret: bytes = field(default=b"", repr=False)
    task: str = ""
    """The task of a plan; its agent gets its own thread, which every server derives alike."""

    def derive(self, user: str | None, thread_id: str) -> str:
        """Return a UUID for user and thread; for anonymous callers perhaps `thread_id` itself."""
        if self.task:
            return str(uuid5(_THREADS, f"{self.task}\0{thread_id}"))
        if user is None and not self._derives_for_anonymous(thread_id):
            return thread_id
        name = f"{user or ''}\0{thread_id}"
        if not self.secret:
            return str(uuid5(_THREADS, name))
        digest = hmac.digest(self.secret, name.encode(errors="surrogatepass"), "sha256")
        return str(UUID(bytes=digest[:16], version=5))

    def _derives_for_anonymous(self, thread_id: str) -> bool:
        """Return whether an anonymous thread needs a derived id, to not collide with a user's."""
        return self.has_users and (bool(self.secret) or _is_derived(thread_id))


_THREADS = UUID("5d0f3b0e-3c53-4b1c-9a3e-7f2f0f1d6a10")


def _is_derived(thread_id: str) -> bool:
    """Return whether an id may have been derived by `ThreadIds`, in any UUID notation."""
    try:
        return UUID(thread_id).version == 5
    except ValueError:
        return False
