"""The public keys of an identity provider (JWKS), cached from a file or a URL."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from copilot_runtime.api.scheme import AuthenticationUnavailable
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import loads
from copilot_runtime.http.client import Upstream

logger = logging.getLogger(__name__)

_LARGEST = 1024 * 1024
_MOST_KEYS = 1_000
_REFETCH_SECONDS = 60.0
"""Minimum seconds between refreshes for unknown key ids, as clients may invent ids."""
_RETRY_SECONDS = 5.0
"""Seconds between attempts after a failure."""
_STALE_SECONDS = 60.0
"""Seconds for which expired keys are used during a refresh (stale-while-revalidate)."""
_TIMEOUT = 10.0
_DISCOVERY = "/.well-known/openid-configuration"
_FAILURES = (OSError, ValueError, TimeoutError, CopilotError)
"""Exceptions of `KeySource.read`."""

Jwk = Mapping[str, Any]


class KeySource(Protocol):
    """A source of a JWKS."""

    async def read(self) -> bytes:
        """Return the current JSON. Raises `OSError`, `ValueError` or `CopilotError`."""
        ...

    async def aclose(self) -> None: ...


class KeySet:
    """The cached keys of one source, by key id.

    They are read on first use, after `ttl` seconds, and for an unknown key id, at most once a
    minute. Refreshes run in the background, unless the keys are older than `ttl` and a minute: then
    one attempt is awaited. Cached keys stay valid while the source fails.
    """

    def __init__(
        self, source: KeySource, *, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._ttl = ttl
        self._clock = clock
        self._keys: Sequence[Jwk] | None = None
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self.reads = 0
        """Number of reads of the source."""

    async def find(self, kid: str | None) -> Sequence[Jwk]:
        """Return the keys with an id, or all keys for `None`. Raises
        `AuthenticationUnavailable`.
        """
        found = _select(kid, await self._current())
        if not found and kid is not None:
            await self._read(_REFETCH_SECONDS)
            found = _select(kid, self._keys or ())
        return found

    async def read(self) -> Sequence[Jwk]:
        """Read the keys now, and return all of them.

        Raises `AuthenticationUnavailable`, whose hint says why.
        """
        try:
            self._keys = await self._fetch()
        except _FAILURES as error:
            raise AuthenticationUnavailable(
                "Sign-in is unavailable: the signing keys cannot be read.", hint=_describe(error)
            ) from error
        self._read_at = self._tried_at = self._clock()
        return self._keys

    async def aclose(self) -> None:
        """Close the connections."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        await self._source.aclose()

    async def _current(self) -> Sequence[Jwk]:
        overdue = self._clock() - self._read_at - self._ttl
        if self._keys is None or overdue >= 0:
            is_too_old = overdue > _STALE_SECONDS and not self._is_failing
            await self._read(_RETRY_SECONDS, waits=self._keys is None or is_too_old)
        if self._keys is None:
            raise AuthenticationUnavailable(
                "Sign-in is unavailable: the signing keys cannot be read."
            )
        return self._keys

    @property
    def _is_failing(self) -> bool:
        return self._tried_at > self._read_at

    async def _read(self, pause: float, *, waits: bool = True) -> None:
        """Read the keys, unless the last attempt is more recent than `pause`.

        All callers share one task; cancelling one of them does not cancel it.
        """
        if self._reading is None:
            if self._clock() < self._tried_at + pause:
                return
            self._reading = asyncio.create_task(self._try(), name="keys of tokens")
            self._reading.add_done_callback(retrieve_exception)
        if waits:
            await asyncio.shield(self._reading)

    async def _try(self) -> None:
        """Read the keys once; an error is logged."""
        try:
            self._keys = await self._fetch()
            self._read_at = self._tried_at = self._clock()
        except _FAILURES as error:
            self._tried_at = self._clock()
            old = "None are known." if self._keys is None else "Those from before are used."
            logger.error("The keys of tokens cannot be read: %s %s", _describe(error), old)
        finally:
            self._reading = None

    async def _fetch(self) -> Sequence[Jwk]:
        self.reads += 1
        async with asyncio.timeout(_TIMEOUT):
            return parse_keys(await self._source.read())


class FileKeys:
    """A JWKS in a file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def read(self) -> bytes:
        """Return the content of the file."""
        return await asyncio.to_thread(self._read)

    async def aclose(self) -> None:
        """Do nothing: the file is not open."""

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(_LARGEST + 1)


class UrlKeys:
    """A JWKS at a URL, or at the `jwks_uri` of the issuer (OpenID Connect Discovery)."""

    def __init__(self, url: str = "", *, issuer: str = "") -> None:
        self._url = url
        self._issuer = issuer
        self._upstream = Upstream("Identity provider", idle_timeout=_TIMEOUT, max_retries=1)
        for address in filter(None, (url, issuer)):
            _check_url(address)

    async def read(self) -> bytes:
        """Return the content of the URL."""
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
        if urlsplit(self._issuer).scheme == "https" and urlsplit(url).scheme != "https":
            raise ValueError(f"{self._issuer} names the jwks_uri {url[:100]!r}, without TLS")
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


def _select(kid: str | None, keys: Sequence[Jwk]) -> Sequence[Jwk]:
    return keys if kid is None else [key for key in keys if key.get("kid") == kid]


def _check_url(url: str) -> None:
    """Raise `ConfigurationFailed` if the URL is not an HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationFailed(
            f"{url[:100]!r} is no address of keys or of an issuer.",
            hint="It begins with https://. For a file, set jwt.jwks to its path.",
        )


def _describe(error: BaseException) -> str:
    text = error.message if isinstance(error, CopilotError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return f"{text.rstrip('.') or type(error).__name__}."
