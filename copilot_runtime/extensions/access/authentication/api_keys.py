"""Authentication by an API key of this server."""

import asyncio
import logging
import time
from collections.abc import Callable

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import (
    AUTHORIZATION,
    AuthenticationUnavailable,
    CredentialInvalid,
    Credentials,
    Scheme,
)
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import StoreFailed
from copilot_runtime.base.outages import LogRateLimit
from copilot_runtime.extensions.access.api_keys.key import PREFIX, ApiKey, KeyStore, split_key
from copilot_runtime.extensions.access.api_keys.store import build_key_store, choose_address
from copilot_runtime.extensions.settings import Settings

logger = logging.getLogger(__name__)

_TOUCH_SECONDS = 60.0
"""Resolution of a key's last use in seconds."""

_FAREWELL = 1.0
"""Maximum seconds to wait at shutdown for updates of the last use."""

_WRONG = "The API key is not valid."
"""The message for clients. Only the log distinguishes wrong, expired and revoked keys."""


class ApiKeyScheme(Scheme):
    """Accepts keys in `Authorization: Bearer` and in the header of `api_keys.header`."""

    def __init__(
        self,
        settings: Settings,
        store: KeyStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store or build_key_store(choose_address(settings))
        self._header = settings.api_keys.header
        self._clock = clock
        self._used: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._log_limit = LogRateLimit()
        self.headers = self.secret_headers = [
            name for name in (AUTHORIZATION, self._header) if name
        ]

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        text = credentials.headers.get(self._header, "").strip() if self._header else ""
        if not text:
            bearer = credentials.find_bearer() or ""
            text = bearer if bearer.startswith(PREFIX) else ""
        if not text:
            return None
        key = await self._find(text)
        self._note_use(key)
        return Identity(
            user=key.user,
            tenant=key.tenant,
            roles=key.roles,
            scopes=key.scopes,
            method="api_key",
            key=key.id,
            expires_at=key.expires_at,
        )

    async def aclose(self) -> None:
        """Wait for pending updates, which may fail, and close the store."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_FAREWELL)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.store.aclose()

    async def _find(self, text: str) -> ApiKey:
        parts = split_key(text)
        if parts is None:
            raise CredentialInvalid(_WRONG, reason="it does not look like a key")
        id, secret = parts
        try:
            key = await self.store.find(id)
        except StoreFailed as error:
            if self._log_limit.allows_line():
                logger.error("API keys cannot be checked: %s", error.hint)
            raise AuthenticationUnavailable("Keys cannot be checked at the moment.") from error
        if key is None:
            raise CredentialInvalid(_WRONG, reason=f"there is no key {PREFIX}{id}")
        if not key.matches(secret):
            raise CredentialInvalid(_WRONG, reason=f"the secret of {key.prefix} is another one")
        state = key.describe_state(self._clock())
        if state != "active":
            owner = Identity(user=key.user, tenant=key.tenant, key=key.id)
            raise CredentialInvalid(_WRONG, reason=f"{key.prefix} is {state}", identity=owner)
        return key

    def _note_use(self, key: ApiKey) -> None:
        """Update the last use of a key once a minute, in the background."""
        now = self._clock()
        if now - max(self._used.get(key.id, 0.0), key.used_at or 0.0) < _TOUCH_SECONDS:
            return
        self._used[key.id] = now
        task = asyncio.create_task(self.store.touch(key.id, now), name=f"touch:{key.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve_exception)
