"""The public keys of an identity provider (JWKS): from a file or a URL, remembered, and rotated."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from copilot_runtime.errors import ConfigurationFailed, CopilotError
from copilot_runtime.http.client import Upstream
from copilot_runtime.jsontext import loads

logger = logging.getLogger(__name__)

_LARGEST = 1024 * 1024
_MOST_KEYS = 1_000
_REFETCH_SECONDS = 60.0
"""How often an unknown key may have the keys read again: whoever invents ids must not do it."""
_RETRY_SECONDS = 5.0
"""How often is tried again after a failure."""
_TIMEOUT = 10.0
_DISCOVERY = "/.well-known/openid-configuration"

Jwk = Mapping[str, Any]


class KeysUnavailable(CopilotError):
    """The keys of an identity provider cannot be read, and none are remembered."""

    code = "AUTHENTICATION_UNAVAILABLE"
    status_code = 503
    visibility = "banner"


class KeySource(Protocol):
    """Where keys are."""

    async def read(self) -> bytes:
        """Return the JSON of the keys as it is now. Raises `OSError`, `ValueError`, or ours."""
        ...

    async def aclose(self) -> None: ...


class KeySet:
    """The keys of one source by their ids.

    They are read when they are first needed, and again after `ttl` seconds, and when a token names
    one that is not among them, though not more than once a minute. Keys that were read stay good
    while the source fails.
    """

    def __init__(
        self, source: KeySource, *, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._ttl = ttl
        self._clock = clock
        self._keys: Sequence[Jwk] | None = None
        self._read_at = self._tried_at = float("-inf")
        self._lock = asyncio.Lock()
        self.reads = 0
        """How often the source was asked."""

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys of an id, or all of them without one. Raises `KeysUnavailable`."""
        found = self._select(kid, await self._current())
        if not found and kid is not None:
            found = self._select(kid, await self._read_again())
        return found

    async def aclose(self) -> None:
        """Close the connections."""
        await self._source.aclose()

    def _select(self, kid: str | None, keys: Sequence[Jwk]) -> Sequence[Jwk]:
        return keys if kid is None else [key for key in keys if key.get("kid") == kid]

    async def _current(self) -> Sequence[Jwk]:
        if self._keys is not None and self._clock() < self._read_at + self._ttl:
            return self._keys
        async with self._lock:
            if self._keys is None or self._clock() >= self._read_at + self._ttl:
                await self._try(_RETRY_SECONDS)
            if self._keys is None:
                raise KeysUnavailable("Nobody can sign in at the moment: keys cannot be read.")
            return self._keys

    async def _read_again(self) -> Sequence[Jwk]:
        async with self._lock:
            await self._try(_REFETCH_SECONDS)
            return self._keys or ()

    async def _try(self, pause: float) -> None:
        """Read the keys, unless that was tried a moment ago. What fails is logged."""
        now = self._clock()
        if now < self._tried_at + pause:
            return
        self._tried_at = now
        self.reads += 1
        try:
            async with asyncio.timeout(_TIMEOUT):
                self._keys = parse_keys(await self._source.read())
            self._read_at = now
        except (OSError, ValueError, TimeoutError, CopilotError) as error:
            old = "None are known." if self._keys is None else "Those from before are used."
            logger.error("The keys of tokens cannot be read: %s %s", _describe(error), old)


class FileKeys:
    """Keys in a file, which is read again as those of a URL are."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def read(self) -> bytes:
        """Return what the file has."""
        return await asyncio.to_thread(self._read)

    async def aclose(self) -> None:
        """Do nothing: the file is not open."""

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(_LARGEST + 1)


class UrlKeys:
    """Keys at a URL; without one, at the URL that the issuer names (OpenID Connect Discovery)."""

    def __init__(self, url: str = "", *, issuer: str = "") -> None:
        self._url = url
        self._issuer = issuer
        self._upstream = Upstream("Identity provider", idle_timeout=_TIMEOUT, max_retries=1)
        for address in filter(None, (url, issuer)):
            _check_url(address)

    async def read(self) -> bytes:
        """Return what the URL has."""
        return await self._get(self._url or await self._discover())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _discover(self) -> str:
        body: Any = loads(await self._get(self._issuer.rstrip("/") + _DISCOVERY))
        fields = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
        if fields.get("issuer") != self._issuer:
            raise ValueError(
                f"{self._issuer} says that it is {str(fields.get('issuer'))[:100]!r}: set "
                "jwt.issuer to what it says"
            )
        url = fields.get("jwks_uri")
        if not isinstance(url, str):
            raise ValueError(f"{self._issuer} names no jwks_uri")
        _check_url(url)
        return url

    async def _get(self, url: str) -> bytes:
        async with self._upstream.get(url, {"accept": "application/json"}) as reply:
            text = await reply.text(_LARGEST)
        if reply.status != 200:
            raise ValueError(f"{url} answers {reply.status}")
        return text


def parse_keys(data: bytes) -> Sequence[Jwk]:
    """Return the keys of a JWKS that may verify signatures. Raises `ValueError`."""
    if len(data) > _LARGEST:
        raise ValueError(f"there are more than {_LARGEST} bytes")
    body: Any = loads(data)
    keys = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(keys, list):
        raise ValueError('it is no JWKS, an object such as {"keys": [...]}')
    found = [
        cast("Jwk", key)
        for key in cast("list[Any]", keys)
        if isinstance(key, dict) and key.get("use", "sig") == "sig"
    ]
    if len(found) > _MOST_KEYS:
        raise ValueError(f"there are {len(found)} keys; at most {_MOST_KEYS} are read")
    return found


def _check_url(url: str) -> None:
    """Raise `ConfigurationFailed` for what is no URL of HTTP."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(
            f"{url[:100]!r} is no address of keys or of an issuer.",
            hint="It begins with https://. For a file, set jwt.jwks to its path.",
        )


def _describe(error: BaseException) -> str:
    text = error.message if isinstance(error, CopilotError) else str(error)
    return f"{text.rstrip('.') or type(error).__name__}."
