"""The interface of authentication schemes, and the credentials of a request."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.errors import AuthenticationFailed, CopilotError

AUTHORIZATION = "authorization"

_LONGEST_BEARER = 16_384
"""Maximum characters of a token; common servers refuse longer headers."""


class CredentialInvalid(AuthenticationFailed):
    """A credential is present and invalid. `reason` and `identity` are for the operator only.

    `identity` is the owner if a signature or secret proves it, such as that of an expired token.
    """

    def __init__(self, message: str, *, reason: str = "", identity: Identity | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.identity = identity


class AuthenticationUnavailable(CopilotError):
    """Authentication is not available, for example because keys cannot be read."""

    code = "AUTHENTICATION_UNAVAILABLE"
    status_code = 503
    visibility = "banner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The parts of a request that identify its sender.

    `peer` is the address that the connection comes from, `unix` for a socket of this machine;
    `method` names the operation, as in `POST agent/default/run`, below the URL of the runtime.
    """

    headers: Mapping[str, str]
    peer: str
    method: str
    read_body: Callable[[], Awaitable[bytes]]

    def find_bearer(self) -> str | None:
        """Return the token of `Authorization: Bearer`, which may be empty, or `None`.

        Raises `CredentialInvalid` if it is too long.
        """
        scheme, _, token = self.headers.get(AUTHORIZATION, "").strip().partition(" ")
        if scheme.lower() != "bearer":
            return None
        if len(token) > _LONGEST_BEARER:
            raise CredentialInvalid(f"The token is longer than {_LONGEST_BEARER} characters.")
        return token.strip()


class Scheme:
    """An authentication scheme, to be subclassed; that of a plugin is constructed with `Settings`.

    `headers` are the headers that it reads. `secret_headers` are removed from a request after this
    scheme has recognised its credential, so that agents do not see keys.
    """

    headers: Collection[str] = (AUTHORIZATION,)
    secret_headers: Collection[str] = ()

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a request, or `None` if it has no credential of this kind.

        Raises `AuthenticationFailed` for an invalid credential; no other scheme is tried then.
        """
        raise NotImplementedError

    def find_forged_headers(self, credentials: Credentials) -> Collection[str]:  # noqa: ARG002
        """Return headers that this sender must not set; they are removed."""
        return ()

    async def open(self) -> None:
        """Prepare the scheme at startup."""

    async def aclose(self) -> None:
        """Release resources at shutdown."""
