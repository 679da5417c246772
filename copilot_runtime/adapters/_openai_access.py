"""Where OpenAI, or a server that speaks like it, is found, and the key it wants."""

import inspect
import os
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

from copilot_runtime.errors import ConfigurationFailed

OPENAI_URL = "https://api.openai.com/v1"

ApiKey = str | Callable[[], str | Awaitable[str]]


class Access:
    """The address and the key; without them `OPENAI_BASE_URL` and `OPENAI_API_KEY` count."""

    def __init__(self, api_key: ApiKey | None, base_url: str | None) -> None:
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._base_url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self.official = self._base_url.rstrip("/") == OPENAI_URL

    def url(self, path: str) -> str:
        """Return the address of an endpoint such as `chat/completions`."""
        parts = urlsplit(self._base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationFailed(
                f"The base URL {self._base_url!r} is not an address.",
                hint="It looks like https://api.openai.com/v1 (OPENAI_BASE_URL or base_url).",
            )
        return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}"))

    async def key(self) -> str | None:
        """Return the key to send, if any. Raises when there must be one, or it cannot be one."""
        key = self._api_key() if callable(self._api_key) else self._api_key
        if inspect.isawaitable(key):
            key = await key
        key = (key or "").strip()  # keys from files end in a newline
        if not key and self.official:
            raise ConfigurationFailed(
                "There is no API key for OpenAI.",
                hint="Set OPENAI_API_KEY, or pass api_key or base_url.",
            )
        if not key.isascii() or not key.isprintable():
            raise ConfigurationFailed(
                "The API key for OpenAI holds characters no key has.",
                hint="Look at OPENAI_API_KEY or api_key: was something else pasted there?",
            )
        return key or None
