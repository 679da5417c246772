"""Open the storage of a URL."""

from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.storage import STORAGES
from copilot_runtime.storage.storage import Storage

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
