"""Several ways to sign in, one after the other."""

from collections.abc import Mapping
from typing import NamedTuple

from copilot_runtime.api.identity import SERVICE_METHOD, TENANT_PREFIX, Identity, is_tenant
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.settings import Settings
from copilot_runtime.extensions.access.authentication import SCHEMES
from copilot_runtime.extensions.access.authentication.scheme import (
    AUTHORIZATION,
    CredentialInvalid,
    Credentials,
    Scheme,
)

KEY_PREFIX, SERVICE_PREFIX = "key:", "service:"
_RESERVED = (TENANT_PREFIX, KEY_PREFIX, SERVICE_PREFIX)
"""How the ids of users may not begin that are not made here."""

_OWN_METHODS = ("api_key", SERVICE_METHOD)
"""Their users are named by the operator of this server, or by us, unless they have an actor."""


class Recognition(NamedTuple):
    """Who sent a request, and the headers that nobody behind the sign-in may see."""

    identity: Identity | None
    removed: frozenset[str] = frozenset()


class SchemeChain:
    """Asks its schemes in their order; the first that recognises its credential decides."""

    def __init__(self, schemes: Mapping[str, Scheme]) -> None:
        self._schemes = [*schemes.values()]
        self.names = tuple(schemes)
        self.headers = frozenset(name for scheme in self._schemes for name in scheme.headers)
        """Those that say who somebody is: none of them may come twice."""

    async def recognise(self, credentials: Credentials) -> Recognition:
        """Return who sent a request; nobody if no scheme knows what it has.

        Raises `AuthenticationFailed` for a credential that is wrong, and for a token that is of no
        kind which is accepted here.
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
        """Return the scheme of a class, if it is one of these."""
        return next((scheme for scheme in self._schemes if isinstance(scheme, kind)), None)


def build_chain(settings: Settings) -> SchemeChain | None:
    """Return the schemes of the settings, if they name any. Raises `ConfigurationFailed`."""
    names = [*dict.fromkeys(settings.access.authenticate)]
    if not names:
        return None
    table = Registry("copilot_runtime.authentication", SCHEMES, noun="way to sign in")
    return SchemeChain({name: _build(table, name, settings) for name in names})


def _build(table: Registry, name: str, settings: Settings) -> Scheme:
    scheme = table[name](settings)
    if not isinstance(scheme, Scheme):
        raise ConfigurationFailed(
            f"The way to sign in {name!r} is a {type(scheme).__name__}, and no Scheme.",
            hint="Subclass copilot_runtime.extensions.access.authentication.scheme.Scheme.",
        )
    return scheme


def check_identity(identity: Identity) -> None:
    """Raise `CredentialInvalid` for a user or a tenant that could be taken for somebody else."""
    if identity.tenant and not is_tenant(identity.tenant):
        raise CredentialInvalid("The tenant of this credential has characters that none may have.")
    own = identity.method in _OWN_METHODS and not identity.actor
    if identity.user is not None and not own and identity.user.startswith(_RESERVED):
        raise CredentialInvalid("The user of this credential has a name that nobody may have.")
