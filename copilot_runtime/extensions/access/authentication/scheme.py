"""What a way to sign in is, and what it sees of a request."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import AuthenticationFailed, CopilotError

AUTHORIZATION = "authorization"

_LONGEST_BEARER = 16_384
"""Characters of a token; nobody else's server takes longer headers."""


class CredentialInvalid(AuthenticationFailed):
    """A credential is there, and is wrong. `reason` is for the operator alone.

    So is `identity`: whose it is, if that is proven by a signature or a secret, such as that of a
    token that has expired.
    """

    def __init__(self, message: str, *, reason: str = "", identity: Identity | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.identity = identity


class AuthenticationUnavailable(CopilotError):
    """Nobody can be let in at the moment: keys cannot be read."""

    code = "AUTHENTICATION_UNAVAILABLE"
    status_code = 503
    visibility = "banner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A request, as far as it says who sends it.

    `peer` is the address that the connection comes from, `unix` for a socket of this machine;
    `method` names the operation, as in `POST agent/default/run`, below the URL of the runtime.
    """

    headers: Mapping[str, str]
    peer: str
    method: str
    read_body: Callable[[], Awaitable[bytes]]

    def find_bearer(self) -> str | None:
        """Return the token of `Authorization: Bearer`, if there is one. It may be empty.

        Raises `CredentialInvalid` for one that is too long.
        """
        scheme, _, token = self.headers.get(AUTHORIZATION, "").strip().partition(" ")
        if scheme.lower() != "bearer":
            return None
        if len(token) > _LONGEST_BEARER:
            raise CredentialInvalid(f"The token is longer than {_LONGEST_BEARER} characters.")
        return token.strip()


class Scheme:
    """A way to sign in. Subclass it; a plugin's is made of the `Settings`.

    `headers` are those that it reads. `secret_headers` are those of them that nothing behind the
    sign-in may see once this scheme has recognised its credential: a key is no business of agents.
    """

    headers: Collection[str] = (AUTHORIZATION,)
    secret_headers: Collection[str] = ()

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Return whose credential a request has, or None if it has none of this kind.

        Raises `AuthenticationFailed` for one that is wrong: nobody else is asked then.
        """
        raise NotImplementedError

    def find_forged_headers(self, credentials: Credentials) -> Collection[str]:  # noqa: ARG002
        """Return headers that this request may not have: they are taken away, whoever sent it."""
        return ()

    async def open(self) -> None:
        """Get ready when the application starts."""

    async def aclose(self) -> None:
        """Release what the scheme holds, when the server ends."""
