"""A chain of authentication schemes."""

from collections.abc import Mapping
from typing import NamedTuple

from copilot_runtime.api.identity import SERVICE_METHOD, TENANT_PREFIX, Identity, is_tenant
from copilot_runtime.api.scheme import AUTHORIZATION, CredentialInvalid, Credentials, Scheme

KEY_PREFIX, SERVICE_PREFIX = "key:", "service:"
_RESERVED = (TENANT_PREFIX, KEY_PREFIX, SERVICE_PREFIX)
"""Prefixes that user ids of other issuers must not have."""

_OWN_METHODS = ("api_key", SERVICE_METHOD)
"""Methods whose user ids are assigned by the operator or by us, unless they have an actor."""


class Recognition(NamedTuple):
    """The identity of a request, and the headers to remove after authentication."""

    identity: Identity | None
    removed: frozenset[str] = frozenset()


class SchemeChain:
    """Tries schemes in order; the first that recognises a credential decides."""

    def __init__(self, schemes: Mapping[str, Scheme]) -> None:
        self._schemes = [*schemes.values()]
        self.names = tuple(schemes)
        self.headers = frozenset(name for scheme in self._schemes for name in scheme.headers)
        """Headers with credentials, which must not be repeated in a request."""

    async def recognise(self, credentials: Credentials) -> Recognition:
        """Return the identity of a request, or `None` in it if no scheme recognises a credential.

        Raises `AuthenticationFailed` for an invalid credential, and for a token that no scheme
        accepts.
        """
        removed: set[str] = set()
        for scheme in self._schemes:
            removed.update(scheme.find_forged_headers(credentials))
        for scheme in self._schemes:
            identity = await scheme.authenticate(credentials)
            if identity is not None:
                check_identity(identity)
                return Recognition(identity, frozenset({*removed, *scheme.secret_headers}))
        return Recognition(None, frozenset(removed))

    def reject_unknown(self, credentials: Credentials) -> None:
        """Raise `CredentialInvalid` for a token that no scheme has recognised."""
        if AUTHORIZATION in self.headers and credentials.headers.get(AUTHORIZATION):
            words = "This token is of no kind that is accepted here"
            if credentials.find_bearer() is None:
                words += f": the header {AUTHORIZATION} has to begin with 'Bearer '"
            raise CredentialInvalid(f"{words}.")

    async def open(self) -> None:
        """Open all schemes."""
        for scheme in self._schemes:
            await scheme.open()

    async def aclose(self) -> None:
        """Close all schemes."""
        for scheme in self._schemes:
            await scheme.aclose()

    def find_scheme(self, kind: type[Scheme]) -> Scheme | None:
        """Return the scheme of a class, or `None` if the chain has none."""
        return next((scheme for scheme in self._schemes if isinstance(scheme, kind)), None)


def check_identity(identity: Identity) -> None:
    """Raise `CredentialInvalid` for a user or tenant that could impersonate another one."""
    if identity.tenant and not is_tenant(identity.tenant):
        raise CredentialInvalid("The tenant of this credential has invalid characters.")
    own = identity.method in _OWN_METHODS and not identity.actor
    if identity.user is not None and not own and identity.user.startswith(_RESERVED):
        raise CredentialInvalid("The user id of this credential is reserved.")
