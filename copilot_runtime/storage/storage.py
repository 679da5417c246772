"""What every storage promises."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from copilot_runtime.errors import Misuse, NotFound


class ObjectNotFound(NotFound):
    """The storage has no object of this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"There is no object {key!r}.")
        self.key = key


class Storage(ABC):
    """Bytes by key.

    A key is a relative path with forward slashes, such as `resources/common.Message.m1.json`; all
    methods raise `Misuse` for one that is empty, absolute, or has a `..`, a backslash or a
    control character. What a method wrote is what every later read sees, in this process and in
    others. A write that fails or is cancelled leaves the old object or the new one, never a part.
    """

    @abstractmethod
    async def put(self, key: str, data: bytes) -> None:
        """Write an object, in place of one that is there."""

    @abstractmethod
    async def get(self, key: str) -> bytes:
        """Return an object. Raises `ObjectNotFound`."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return those of the objects that exist, in the order of `keys`."""
        found: dict[str, bytes] = {}
        for key in keys:
            try:
                found[key] = await self.get(key)
            except ObjectNotFound:
                continue
        return found

    @abstractmethod
    async def delete(self, key: str) -> bool:
        """Remove an object. Returns whether it was there."""

    @abstractmethod
    async def exists(self, key: str) -> bool:
        """Return whether there is an object of this key."""

    @abstractmethod
    async def append(self, key: str, data: bytes) -> None:
        """Add to the end of an object, and make it if there is none.

        Writers in several tasks and processes lose nothing of each other, and none stands inside
        what another one wrote.
        """

    @abstractmethod
    async def find_by_prefix(self, prefix: str = "", delimiter: str = "") -> list[str]:
        """Return the keys that begin with `prefix`, the one written longest ago first.

        With a delimiter, keys that have it after the prefix are shown once, cut off behind it.
        """

    async def find_by_extension(self, extension: str) -> list[str]:
        """Return the keys that end with an extension, such as `.html`."""
        return [key for key in await self.find_by_prefix() if key.endswith(extension)]

    def path(self, key: str) -> Path | None:  # noqa: ARG002
        """Return the file that holds an object, to map it into memory; None where no file does."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Let go of what the storage holds."""

    async def list(self) -> list[str]:
        """Return all keys, the one written longest ago first."""
        return await self.find_by_prefix()


def check_key(key: str) -> str:
    """Return a key that is safe. Raises `Misuse`."""
    parts = key.split("/")
    if not key or "\\" in key or not key.isprintable() or {"", ".", ".."} & set(parts):
        raise Misuse(
            f"{key[:200]!r} is no key of an object.",
            hint="A key is a relative path with forward slashes, without empty parts and '..'.",
        )
    return key


def cut_keys(keys: Iterable[str], prefix: str, delimiter: str) -> list[str]:
    """Return the keys that begin with `prefix`, each cut off behind its first delimiter."""
    found: dict[str, None] = {}
    for key in keys:
        if key.startswith(prefix):
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            found[prefix + head + cut if cut else key] = None
    return [*found]
