"""What pages call MCP servers that have no id, so that they learn no address from it."""

import hmac
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from os import urandom

LoadSecret = Callable[[], Awaitable[str]]
"""Returns the secret that all servers of one runtime share; empty if there is none."""

logger = logging.getLogger(__name__)


class TokenKey:
    """Makes tokens that nobody can compute who has not the secret, which is loaded when needed."""

    def __init__(self, load_secret: LoadSecret | None = None) -> None:
        self._load_secret = load_secret
        self._secret = b""

    async def sign(self, *parts: str) -> str:
        """Return a token of texts. Raises `StoreFailed` if the secret cannot be read."""
        if not self._secret:
            secret = await self._load_secret() if self._load_secret is not None else ""
            if self._load_secret is not None and not secret:
                logger.warning(
                    "The store of threads has no secret: after a restart, frames of MCP apps whose "
                    "server has no id stay empty. The setting 'secret' helps, and so does an id."
                )
            # another request may have come first
            self._secret = self._secret or secret.encode() or urandom(32)
        name = "\0".join(("mcp-app", *parts)).encode(errors="surrogatepass")
        return hmac.digest(self._secret, name, "sha256").hex()[:32]


def append_address(token: str, url: str) -> str:
    """Return a token with an address that the page knows, because it has named it."""
    return f"{token}.{urlsafe_b64encode(url.encode()).decode()}"


def read_address(token: str) -> str:
    """Return the address in a token; empty if there is none."""
    try:
        return urlsafe_b64decode(token.partition(".")[2]).decode()
    except ValueError:
        return ""


class RememberedKeys:
    """The keys that pages brought for servers they named, as long as this process lives.

    A frame names its server by a token, without the key. There are at most `max_keys` of one
    owner, and those of `max_owners`; the oldest go first.
    """

    def __init__(self, *, max_owners: int = 4_096, max_keys: int = 16) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        self._max_owners = max_owners
        self._max_keys = max_keys

    def add(self, owner: str, token: str, key: str) -> None:
        """Remember a key."""
        keys = self._owners.setdefault(owner, OrderedDict())
        keys[token] = key
        keys.move_to_end(token)
        if len(keys) > self._max_keys:
            keys.popitem(last=False)
        self._owners.move_to_end(owner)
        if len(self._owners) > self._max_owners:
            self._owners.popitem(last=False)

    def find(self, owner: str, token: str) -> str:
        """Return the key for a token of an owner; empty if there is none."""
        return self._owners.get(owner, {}).get(token, "")
