"""Who finds the files of a conversation, where they are found in no other one."""

from collections.abc import Hashable, Iterable

from copilot_runtime.knowledge.access import Access

UPLOAD = "file.Upload"
"""The type of a file that somebody has attached."""


class ThreadAccess(Access):
    """What somebody may do in one conversation: files in their other ones are not there."""

    def __init__(self, access: Access, conversation: str) -> None:
        self._access = access
        self._below = f"{conversation}/"

    @property
    def key(self) -> Hashable:
        return (self._access.key, self._below)

    def allows(self, uri: str) -> bool:
        return self._is_here(uri) and self._access.allows(uri)

    def judge(self, uris: Iterable[str]) -> list[bool]:
        uris = [*uris]
        judged = self._access.judge(uris)
        return [may and self._is_here(uri) for uri, may in zip(uris, judged, strict=True)]

    def _is_here(self, uri: str) -> bool:
        return f"/{UPLOAD}." not in uri or uri.startswith(self._below)
