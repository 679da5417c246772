"""Tokens that identify MCP servers without an identifier, without revealing their address."""

import hmac
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from os import urandom

LoadSecret = Callable[[], Awaitable[str]]
"""Returns the secret shared by all servers of a runtime; empty if there is none."""

logger = logging.getLogger(__name__)


class TokenKey:
    """Signs tokens with the secret, which is loaded on first use."""

    def __init__(self, load_secret: LoadSecret | None = None) -> None:
        self._load_secret = load_secret
        self._secret = b""

    async def sign(self, *parts: str) -> str:
        """Return the token for a list of strings.

        Raises `StoreFailed` if the secret cannot be read.
        """
        if not self._secret:
            secret = await self._load_secret() if self._load_secret is not None else ""
            if self._load_secret is not None and not secret:
                logger.warning(
                    "The store of threads has no secret: after a restart, frames of MCP apps whose "
                    "server has no id stay empty. The setting 'secret' helps, and so does an id."
                )
            # another request may have set it meanwhile
            self._secret = self._secret or secret.encode() or urandom(32)
        name = "\0".join(("mcp-app", *parts)).encode(errors="surrogatepass")
        return hmac.digest(self._secret, name, "sha256").hex()[:32]


def append_address(token: str, url: str) -> str:
    """Return a token extended by an address that the frontend knows, because it sent it."""
    return f"{token}.{urlsafe_b64encode(url.encode()).decode()}"


def read_address(token: str) -> str:
    """Return the address in a token, or an empty string."""
    try:
        return urlsafe_b64decode(token.partition(".")[2]).decode()
    except ValueError:
        return ""


class RememberedKeys:
    """In-memory cache of the keys that frontends sent for servers they named.

    A frame identifies its server by a token, without the key. At most `max_keys` per owner and
    `max_owners` are kept; the oldest are evicted.
    """

    def __init__(self, *, max_owners: int = 4_096, max_keys: int = 16) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        self._max_owners = max_owners
        self._max_keys = max_keys

    def add(self, owner: str, token: str, key: str) -> None:
        """Store a key."""
        keys = self._owners.setdefault(owner, OrderedDict())
        keys[token] = key
        keys.move_to_end(token)
        if len(keys) > self._max_keys:
            keys.popitem(last=False)
        self._owners.move_to_end(owner)
        if len(self._owners) > self._max_owners:
            self._owners.popitem(last=False)

    def find(self, owner: str, token: str) -> str:
        """Return the key for an owner's token, or an empty string."""
        return self._owners.get(owner, {}).get(token, "")
