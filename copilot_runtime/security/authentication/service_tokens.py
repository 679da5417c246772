"""Services of one operator that call each other."""

from copilot_runtime.config.settings import Settings
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.identity import Identity
from copilot_runtime.security.authentication.chain import SERVICE_PREFIX
from copilot_runtime.security.authentication.scheme import AUTHORIZATION, Credentials, Scheme
from copilot_runtime.security.service_tokens import (
    ReplayStore,
    ServiceTokenVerifier,
    is_service_token,
)


class ServiceTokenScheme(Scheme):
    """Takes the tokens that `ServiceTokenSigner` makes, for the method and the body of a request.

    The body is read only once the signature is known to be right.
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
            section.secrets, form=section.form, lifetime=section.lifetime, replays=replays
        )
        self._roles = section.roles

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Return the service that has signed a request."""
        token = credentials.find_bearer()
        if not token or not is_service_token(token):
            return None
        claims = self.verifier.read(token, credentials.method)
        if claims.is_bound:
            claims.check_body(await credentials.read_body())
        await self.verifier.use(claims)
        return Identity(
            user=SERVICE_PREFIX + claims.service, roles=self._roles, method="service_token"
        )
