"""Things of annotated HTML that were merged over files before there was a policy.

With a policy, each file has a resource of its own of a thing; the merged ones are hidden from all
users, as no rule for a file reaches them.
"""

import re
from collections.abc import Hashable, Iterable

from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.identifiers import THING

_MERGED = re.compile(rf"{re.escape(THING)}\.[0-9a-f]{{32}}")


def is_merged(uri: str) -> bool:
    """Return whether a resource is what files say about a thing, taken in without a policy."""
    return _MERGED.fullmatch(uri) is not None


class FiledAccess(Access):
    """Denies the things that are below no file, until they are taken in with the policy."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @property
    def key(self) -> Hashable:
        return FiledAccess, self._access.key

    @property
    def immediate(self) -> Access | None:
        immediate = self._access.immediate
        return immediate and FiledAccess(immediate)

    def allows(self, uri: str) -> bool:
        return self._access.allows(uri) and not is_merged(uri)

    def judge(self, uris: Iterable[str]) -> list[bool]:
        uris = [*uris]
        judged = zip(uris, self._access.judge(uris), strict=True)
        return [may and not is_merged(uri) for uri, may in judged]
