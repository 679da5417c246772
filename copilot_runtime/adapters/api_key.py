"""API keys and tokens: fixed values, or functions that return one for each request."""

import inspect
from collections.abc import Awaitable, Callable

from copilot_runtime.base.errors import ConfigurationFailed

ApiKey = str | Callable[[], str | Awaitable[str]]


async def resolve_api_key(key: ApiKey | None, provider: str) -> str:
    """Return the key, or an empty string if there is none.

    Raises `ConfigurationFailed` if the key contains characters that no key has.
    """
    found = key() if callable(key) else key
    if inspect.isawaitable(found):
        found = await found
    found = (found or "").strip()  # keys from files end in a newline
    if not found.isascii() or not found.isprintable():
        raise ConfigurationFailed(
            f"The API key for {provider} holds characters no key has.",
            hint="Look at api_key, token or the environment: was something else pasted there?",
        )
    return found
