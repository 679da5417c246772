"""Authentication of the operator's services to each other, by signed tokens."""

import logging
import time

from copilot_runtime.api.identity import SERVICE_METHOD, Identity
from copilot_runtime.api.scheme import (
    AUTHORIZATION,
    AuthenticationUnavailable,
    Credentials,
    Scheme,
)
from copilot_runtime.base.errors import ConfigurationFailed, StoreFailed
from copilot_runtime.base.outages import LogRateLimit
from copilot_runtime.extensions.access.api_keys.key import KeyStore
from copilot_runtime.extensions.access.api_keys.store import build_key_store, choose_address
from copilot_runtime.extensions.access.service_tokens import (
    MemoryReplays,
    ReplayStore,
    ServiceTokenVerifier,
    is_service_token,
)
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.security.schemes import SERVICE_PREFIX

logger = logging.getLogger(__name__)


class ServiceTokenScheme(Scheme):
    """Accepts tokens of `ServiceTokenSigner` for the method and body of a request.

    The body is read only after the signature was verified.
    """

    secret_headers = (AUTHORIZATION,)

    def __init__(self, settings: Settings, replays: ReplayStore | None = None) -> None:
        section = settings.service_tokens
        if not section.secrets:
            raise ConfigurationFailed(
                "access.authenticate names service_tokens, and service_tokens.secrets is empty.",
                hint="`openssl rand -hex 32` prints a secret.",
            )
        self.verifier = ServiceTokenVerifier(
            section.secrets,
            form=section.form,
            lifetime=section.lifetime,
            replays=replays or build_replays(settings),
        )
        self._roles = section.roles

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        token = credentials.find_bearer()
        if not token or not is_service_token(token):
            return None
        claims = self.verifier.read(token, credentials.method)
        if claims.is_bound:
            claims.check_body(await credentials.read_body())
        await self.verifier.use(claims)
        return Identity(
            user=SERVICE_PREFIX + claims.service, roles=self._roles, method=SERVICE_METHOD
        )

    async def aclose(self) -> None:
        if isinstance(self.verifier.replays, StoredReplays):
            await self.verifier.replays.aclose()


class StoredReplays:
    """Nonces in the store of API keys: a token can be used once in all processes that share it."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store
        self._log_limit = LogRateLimit()

    async def add(self, nonce: str, signed_at: float, expires_at: float) -> bool:  # noqa: ARG002
        """Remember a nonce. Raises `AuthenticationUnavailable` if that cannot be done."""
        try:
            return await self._store.add_nonce(nonce, expires_at, time.time())
        except StoreFailed as error:
            if self._log_limit.allows_line():
                logger.error("Tokens of services cannot be checked: %s", error.hint)
            raise AuthenticationUnavailable("Tokens cannot be checked at the moment.") from error

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


def build_replays(settings: Settings) -> ReplayStore:
    """Return the store of nonces for all processes that share the threads."""
    if settings.threads == "memory" and not settings.api_keys.store:
        return MemoryReplays()
    return StoredReplays(build_key_store(choose_address(settings)))
