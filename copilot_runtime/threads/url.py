"""Find the thread store for the setting `threads`."""

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.checks import check_store_address
from copilot_runtime.threads import STORES
from copilot_runtime.threads.store import ThreadStore


def build_store(address: str) -> ThreadStore:
    """Return the store for an address such as `sqlite:threads.db`, without opening it.

    The word before the colon is a name in the registry of stores, which plugins extend; a plugin
    gets the text after `name:` or `name://`. Raises `ConfigurationFailed`.
    """
    try:
        check_store_address(address)
    except ValueError as error:
        raise ConfigurationFailed(f"The store of threads is refused because {error}.") from None
    name, _, rest = address.partition(":")
    make = Registry("copilot_runtime.threads", STORES, noun="store of threads")[name]
    if name == "memory":
        return make()
    if name == "sqlite":
        # sqlite:///threads.db is relative and sqlite:////srv/threads.db is not, as elsewhere
        if rest.startswith("//") and not rest.startswith("///"):  # a host, of which there is none
            raise ConfigurationFailed(
                f"The address {address!r} has two slashes, and no meaning with them.",
                hint=f"Write sqlite:{rest[2:]} for a file below the working directory, "
                f"sqlite:/{rest[2:]} for an absolute path.",
            )
        path = rest[3:] if rest.startswith("///") else rest
        if not path:
            raise ConfigurationFailed(
                f"The address {address!r} names no file.", hint="For example: sqlite:threads.db"
            )
        return make(path)
    if name in STORES:
        return make(address)
    return make(rest.removeprefix("//"))
