"""What every storage promises."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import CopilotError, Misuse, NotFound

RESERVED = ".~"
"""No part of a key begins with it: what does is no object, but a file of the storage's own."""


class ObjectNotFound(NotFound):
    """The storage has no object of this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"There is no object {key!r}.")
        self.key = key


class ObjectChanged(CopilotError):
    """An object is not what a conditional write expected: another writer was first."""

    code = "CONFLICT"
    status_code = 409
    visibility = "banner"
    severity = "warning"
    retryable = True

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The object {key!r} was changed by another writer.",
            hint="Read it again, and write what follows from that.",
        )
        self.key = key


class StorageFailed(CopilotError):
    """The place of a storage refuses: it is full, read-only, out of reach, or somebody else's."""

    code = "STORE_FAILED"
    status_code = 503
    visibility = "banner"
    retryable = True


class Storage(ABC):
    """Bytes by key.

    A key is a relative path with forward slashes, such as `resources/common.Message.m1.json`; all
    methods raise `Misuse` for one that is empty, absolute, or has a `..`, a backslash or a
    control character. What a method wrote is what every later read sees, in this process and in
    others. A write that fails or is cancelled leaves the old object or the new one, never a part.

    An etag is a text that changes whenever an object does; that of an object that is not there is
    empty.
    """

    @abstractmethod
    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        """Write an object, in place of one that is there, and return its etag.

        With `expected`, raises `ObjectChanged` instead if that is not the etag of what is there:
        of several writers who expect the same, one succeeds. Empty, it writes a new object only.
        """

    async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        """Write objects and return their etags. What fails midway has written some of them."""
        return {key: await self.put(key, data) for key, data in objects.items()}

    async def get(self, key: str) -> bytes:
        """Return an object. Raises `ObjectNotFound`."""
        return (await self.read(key))[0]

    @abstractmethod
    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        """Return an object from byte `start` on, with its etag. Raises `ObjectNotFound`."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return those of the objects that exist, in the order of `keys`."""
        return {key: data for key, (data, _) in (await self.read_many(keys)).items()}

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        """Return those of the objects that exist with their etags, in the order of `keys`."""
        found: dict[str, tuple[bytes, str]] = {}
        for key in keys:
            try:
                found[key] = await self.read(key)
            except ObjectNotFound:
                continue
        return found

    @abstractmethod
    async def delete(self, key: str) -> bool:
        """Remove an object. Returns whether it was there."""

    async def delete_many(self, keys: Iterable[str]) -> list[str]:
        """Remove objects. Returns the keys of those that were there."""
        return [key for key in keys if await self.delete(key)]

    async def exists(self, key: str) -> bool:
        """Return whether there is an object of this key."""
        return await self.etag(key) != ""

    @abstractmethod
    async def etag(self, key: str) -> str:
        """Return the etag of an object."""

    async def put_with_log(
        self,
        objects: Mapping[str, bytes],
        log: str,
        describe: Callable[[Mapping[str, str]], bytes],
    ) -> dict[str, str]:
        """Write objects, and append to the object `log` what `describe` makes of their etags.

        Returns the etags that they have then: others than those if somebody wrote meanwhile.
        """
        await self.append(log, describe(await self.put_many(objects)))
        return await self.find_many_etags(objects)

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the etag of each object."""
        return {key: await self.etag(key) for key in keys}

    @abstractmethod
    async def append(self, key: str, data: bytes) -> None:
        """Add to the end of an object, and make it if there is none.

        What is added to a `.jsonl` object begins in a line of its own: the last one gets an end if
        it lacks it, as a process that was killed may leave it. A `.json` object is one value, so
        nothing is added to it: that raises `Misuse`.

        Writers in several tasks and processes lose nothing of each other, and none stands inside
        what another one wrote.
        """

    @abstractmethod
    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        """Return the keys that begin with `prefix` and their etags, oldest write first.

        A prefix that leads elsewhere is as bad as such a key.
        """

    async def find_by_prefix(self, prefix: str = "", delimiter: str = "") -> list[str]:
        """Return the keys that begin with `prefix`, the one written longest ago first.

        With a delimiter, keys that have it after the prefix are shown once, cut off behind it.
        """
        return cut_keys(await self.find_etags(prefix), prefix, delimiter)

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
    reserved = key.startswith(RESERVED) or f"/{RESERVED}" in key
    if "\\" in key or reserved or not key.isprintable() or {"", ".", ".."} & set(parts):
        raise Misuse(
            f"{key[:200]!r} is no key of an object.",
            hint="A key is a relative path with forward slashes, without '..', without empty parts "
            f"and without those that begin with {RESERVED!r}.",
        )
    return key


def check_prefix(prefix: str) -> str:
    """Return what keys may begin with. Raises `Misuse`."""
    folder = prefix.rpartition("/")[0]
    if folder or prefix.startswith("/"):
        check_key(folder)
    return prefix


def is_log_key(key: str) -> bool:
    """Return whether something can be appended to the object of a key."""
    return not key.endswith(".json")


def check_log_key(key: str) -> str:
    """Return the key of an object that can grow. Raises `Misuse`."""
    if not is_log_key(check_key(key)):
        raise Misuse(
            f"Nothing can be appended to {key!r}: it is one JSON value.",
            hint="A file with one value in each line is called .jsonl.",
        )
    return key


def is_lines_key(key: str) -> bool:
    """Return whether the object of a key consists of lines."""
    return key.endswith(".jsonl")


def join_lines(key: str, parts: Iterable[bytes]) -> bytes:
    """Return what was appended to the object of a key, one part after the other."""
    joined = bytearray()
    for part in parts:
        if part and joined and not joined.endswith(b"\n") and is_lines_key(key):
            joined += b"\n"
        joined += part
    return bytes(joined)


def cut_keys(keys: Iterable[str], prefix: str, delimiter: str) -> list[str]:
    """Return the keys that begin with `prefix`, each cut off behind its first delimiter."""
    found: dict[str, None] = {}
    for key in keys:
        if key.startswith(prefix):
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            found[prefix + head + cut if cut else key] = None
    return [*found]


async def copy_objects(
    source: Storage,
    target: Storage,
    prefix: str = "",
    *,
    progress: Callable[[int, int], None] | None = None,
    at_once: int = 100,
) -> int:
    """Copy the objects whose keys begin with a prefix, and return how many there were.

    `progress` gets how many are done, and how many there are. Objects that the target has already
    are written again; one that vanishes meanwhile is left out.
    """
    keys = await source.find_by_prefix(prefix)
    copied = 0
    done = 0
    for batch in split_batches(keys, at_once):
        objects = await source.get_many(batch)
        await target.put_many(objects)
        copied += len(objects)
        done += len(batch)
        if progress is not None:
            progress(done, len(keys))
    return copied
