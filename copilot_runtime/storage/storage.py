"""The interface of storages, the rules of keys, and the storage of a URL."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse, NotFound

STORAGES = {
    "local": "copilot_runtime.storage.local:LocalStorage",
    "memory": "copilot_runtime.storage.memory:MemoryStorage",
    "s3": "copilot_runtime.storage.s3:S3Storage",
}
"""Storage classes by the scheme of a storage URL."""

RESERVED = ".~"
"""Prefix of the storage's internal files; no part of a key may begin with it."""


class ObjectNotFound(NotFound):
    """The storage has no object with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"There is no object {key!r}.")
        self.key = key


class ObjectChanged(CopilotError):
    """A conditional write failed, because another writer was first."""

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
    """A storage is full, read-only, unreachable, or denies access."""

    code = "STORE_FAILED"
    status_code = 503
    visibility = "banner"
    retryable = True


class Storage(ABC):
    """Bytes by key.

    A key is a relative path with forward slashes, such as `resources/common.Message.m1.json`; all
    methods raise `Misuse` for one that is empty, absolute, or has a `..`, a backslash or a
    control character. Every later read sees a completed write, in this process and in others. A
    write that fails or is cancelled leaves the old object or the new one, never a part.

    An etag is a string that changes whenever the object does; it is empty for a missing object.
    """

    @abstractmethod
    async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
        """Write or replace an object, and return its etag.

        With `expected`, raises `ObjectChanged` unless that is the etag of the current object:
        of several writers who expect the same, one succeeds. Empty, it writes a new object only.
        """

    async def put_many(self, objects: Mapping[str, bytes]) -> dict[str, str]:
        """Write objects, and return their etags. On failure, some may have been written."""
        return {key: await self.put(key, data) for key, data in objects.items()}

    async def get(self, key: str) -> bytes:
        """Return an object. Raises `ObjectNotFound`."""
        return (await self.read(key))[0]

    @abstractmethod
    async def read(self, key: str, start: int = 0) -> tuple[bytes, str]:
        """Return an object from byte `start` on, with its etag. Raises `ObjectNotFound`."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the objects that exist, in the order of `keys`."""
        return {key: data for key, (data, _) in (await self.read_many(keys)).items()}

    async def read_many(self, keys: Iterable[str]) -> dict[str, tuple[bytes, str]]:
        """Return the objects that exist with their etags, in the order of `keys`."""
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
        """Return whether an object exists."""
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

        Returns the resulting etags, which differ from those if another writer was faster.
        """
        await self.append(log, describe(await self.put_many(objects)))
        return await self.find_many_etags(objects)

    async def find_many_etags(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the etag of each object."""
        return {key: await self.etag(key) for key in keys}

    @abstractmethod
    async def append(self, key: str, data: bytes) -> None:
        """Append to an object, which is created if it does not exist.

        Data appended to a `.jsonl` object starts on a new line: an incomplete last line, which a
        killed process may leave, is terminated first. A `.json` object is a single value, so
        appending to it raises `Misuse`.

        Appends of several tasks and processes are never lost or interleaved.
        """

    @abstractmethod
    async def find_etags(self, prefix: str = "") -> dict[str, str]:
        """Return the keys that begin with `prefix` and their etags, oldest write first.

        Raises `Misuse` for a prefix that no key may begin with.
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
        """Return the file of an object for memory mapping, or `None` if it has none."""
        return None

    async def aclose(self) -> None:  # noqa: B027
        """Release the resources of the storage."""

    async def list(self) -> list[str]:
        """Return all keys, the one written longest ago first."""
        return await self.find_by_prefix()


def check_key(key: str) -> str:
    """Return a key if it is valid. Raises `Misuse`."""
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
    """Return a prefix if it is valid. Raises `Misuse`."""
    folder = prefix.rpartition("/")[0]
    if folder or prefix.startswith("/"):
        check_key(folder)
    return prefix


def is_log_key(key: str) -> bool:
    """Return whether the object of a key supports appends."""
    return not key.endswith(".json")


def check_log_key(key: str) -> str:
    """Return a key if its object supports appends. Raises `Misuse`."""
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
    """Join appended parts; parts of a lines object are separated by line ends."""
    joined = bytearray()
    for part in parts:
        if part and joined and not joined.endswith(b"\n") and is_lines_key(key):
            joined += b"\n"
        joined += part
    return bytes(joined)


def cut_keys(keys: Iterable[str], prefix: str, delimiter: str) -> list[str]:
    """Return the keys with a prefix, each cut off after its first delimiter, without duplicates."""
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
    """Copy the objects with a prefix, and return their number.

    `progress` receives the number of processed objects and their total. Existing objects of the
    target are overwritten; objects deleted meanwhile are skipped.
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


_S3_PARAMETERS = {"region", "endpoint"}
_EXAMPLES = "For example: local:.copilot/knowledge, memory, s3://bucket/prefix?region=eu-west-1"


def open_storage(address: str) -> Storage:
    """Return the storage of a URL, without accessing it.

    `local:PATH` is a directory, with `?fsync=always` (or `batch`, `never`) if wanted; `memory` ends
    with the process; `s3://bucket/prefix` is a bucket, with `?region=` and `&endpoint=` if they are
    not those of the environment. Packages may add names of their own, in the entry point group
    `copilot_runtime.storage`; theirs get what stands behind `name:` or `name://`.

    Raises `ConfigurationFailed`.
    """
    name, _, rest = address.partition(":")
    if not name:
        raise ConfigurationFailed(f"The storage {address!r} has no kind.", hint=_EXAMPLES)
    make = Registry("copilot_runtime.storage", STORAGES, noun="storage")[name]
    if name == "memory":
        if rest:
            raise ConfigurationFailed("The storage 'memory' has no address.", hint=_EXAMPLES)
        return make()
    if name == "local":
        path, parameters = _split(address, rest, {"fsync"})
        if not path:
            raise ConfigurationFailed(f"The storage {address!r} names no path.", hint=_EXAMPLES)
        return make(path, **parameters)
    if name == "s3":
        return _open_bucket(address, make)
    return make(rest.removeprefix("//"))


def _open_bucket(address: str, make: Callable[..., Storage]) -> Storage:
    place, parameters = _split(address, address, _S3_PARAMETERS)
    parts = urlsplit(place)
    if not parts.netloc:
        raise ConfigurationFailed(f"The storage {address!r} names no bucket.", hint=_EXAMPLES)
    endpoint = parameters.get("endpoint", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigurationFailed(
            f"The endpoint {endpoint!r} of a storage is no address of a server.",
            hint="For example: endpoint=https://minio.example:9000",
        )
    return make(parts.netloc, unquote(parts.path), **parameters)


def _split(address: str, text: str, names: set[str]) -> tuple[str, dict[str, str]]:
    """Split a URL at the question mark into its address and its parameters."""
    place, _, query = text.partition("?")
    parameters = {name: value for name, value in parse_qsl(query) if value}
    if unknown := parameters.keys() - names:
        raise ConfigurationFailed(
            f"The storage {address!r} has a parameter {min(unknown)!r} that it does not know.",
            hint=f"There are: {', '.join(sorted(names))}.",
        )
    return place, parameters
