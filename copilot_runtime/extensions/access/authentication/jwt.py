"""Authentication by a JWT of an identity provider."""

import logging
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import (
    AuthenticationUnavailable,
    CredentialInvalid,
    Credentials,
    Scheme,
)
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.base.jsontext import loads
from copilot_runtime.extensions.access.jwks import (
    FileKeys,
    Jwk,
    KeySet,
    UrlKeys,
)
from copilot_runtime.extensions.access.settings import JwtSettings
from copilot_runtime.extensions.settings import Settings

logger = logging.getLogger(__name__)

_ISSUED_AHEAD = 300.0
"""Maximum seconds of `iat` in the future, as in Copilot-LD."""

_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The key type (`kty`) of algorithms, by the prefix of their names."""
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}

_LEAST_RSA_BITS = 2048
_MOST_ROLES = 200
_LATEST = 2**53
"""The latest time accepted; floats are exact integers up to it."""


class JwtScheme(Scheme):
    """Accepts tokens of one issuer, with only the algorithms and keys of the settings.

    A token's header can only select among those. An algorithm accepts only keys of its type, and
    `none` is not an algorithm.
    """

    def __init__(
        self,
        settings: Settings | JwtSettings,
        keys: KeySet | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        section = settings.jwt if isinstance(settings, Settings) else settings
        self._section = section
        self._clock = clock
        self._secret = section.secret.encode()
        self._has_public = any(not name.startswith("HS") for name in section.algorithms)
        self._file = _find_file(section)
        self.keys = keys or (_build_keys(section, self._file) if self._has_public else None)
        self._verifier = _SignatureVerifier(section.algorithms)

    async def authenticate(self, credentials: Credentials) -> Identity | None:
        """Return the identity of a request's token, or `None`. Raises as `verify` does."""
        token = credentials.find_bearer()
        if not token or token.count(".") != 2:
            return None
        claims = await self.verify(token)
        return self.identify(claims)

    async def verify(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token. Raises `CredentialInvalid`, `AuthenticationUnavailable`."""
        parts = _split(token)
        algorithm = parts.header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._section.algorithms:
            raise CredentialInvalid("Invalid algorithm")
        if "crit" in parts.header:
            raise CredentialInvalid(
                "The token requires a critical header extension ('crit') that is not supported."
            )
        await self._verify_signature(token, algorithm, parts.header)
        try:
            self._check_claims(parts.claims)
        except CredentialInvalid as error:
            error.identity = self._find_subject(parts.claims)
            raise
        return parts.claims

    def _find_subject(self, claims: Mapping[str, Any]) -> Identity | None:
        """Return the owner of a correctly signed but refused token, or `None`."""
        user = _find_claim(claims, self._section.user_claim)
        tenant = _find_claim(claims, self._section.tenant_claim)
        if not isinstance(user, str):
            return None
        return Identity(user=user, tenant=tenant if isinstance(tenant, str) else "")

    def identify(self, claims: Mapping[str, Any]) -> Identity:
        """Return the identity in the claims. Raises `CredentialInvalid`."""
        section = self._section
        user = _find_claim(claims, section.user_claim)
        if not isinstance(user, str) or not user:
            raise CredentialInvalid(
                "The token names no user.", reason=f"no claim {section.user_claim!r} with a text"
            )
        tenant = _find_claim(claims, section.tenant_claim) if section.tenant_claim else ""
        if section.tenant_claim and not (isinstance(tenant, str) and tenant):
            raise CredentialInvalid(
                "The token names no tenant.",
                reason=f"no claim {section.tenant_claim!r} with a text",
            )
        try:
            roles = _list_words(claims, section.roles_claim)
            scopes = _list_words(claims, section.scopes_claim) if section.scopes_claim else None
        except CredentialInvalid as error:
            error.identity = self._find_subject(claims)
            raise
        return Identity(
            user=user,
            tenant=tenant if isinstance(tenant, str) else "",
            roles=roles,
            scopes=scopes,
            method="jwt",
            expires_at=_read_time(claims, "exp"),
        )

    async def open(self) -> None:
        """Read the keys of a file; those of a URL are read on first use.

        Raises `ConfigurationFailed`.
        """
        if self.keys is None or self._file is None:
            return
        try:
            await self.list_usable_keys()
        except AuthenticationUnavailable as error:
            raise ConfigurationFailed(
                f"jwt.jwks is {self._section.jwks!r}, and there is no key to verify tokens with. "
                f"{error.hint}",
                hint="A path is relative to the working directory, which is "
                f"'{Path.cwd()}'. Write the whole path of a JWKS with a public key for one of "
                f"{', '.join(self._section.algorithms)}, or a URL, or set jwt.issuer alone.",
            ) from error

    async def list_usable_keys(self) -> Sequence[Jwk]:
        """Read the keys, and return those that can verify a token.

        Raises `AuthenticationUnavailable`, also if there are none: its hint says why.
        """
        assert self.keys is not None, "there is an algorithm with public keys"
        names = [name for name in self._section.algorithms if not name.startswith("HS")]
        try:
            found = await self.keys.read()
        except AuthenticationUnavailable as error:
            if self.place not in (error.hint or ""):
                error.hint = f"{self.place}: {error.hint}"
            raise
        usable = [key for key in found if any(self._verifier.can_use(key, one) for one in names)]
        if not usable:
            raise AuthenticationUnavailable(
                "Sign-in is unavailable: there are no signing keys.",
                hint=f"{self.place} has no key for {', '.join(names)}.",
            )
        return usable

    @property
    def place(self) -> str:
        """The path or URL of the keys, or the issuer."""
        return str(self._file or self._section.jwks or self._section.issuer)

    async def aclose(self) -> None:
        if self.keys is not None:
            await self.keys.aclose()

    async def _verify_signature(
        self, token: str, algorithm: str, header: Mapping[str, Any]
    ) -> None:
        if algorithm.startswith("HS"):
            if not self._verifier.verify_shared(token, algorithm, self._secret):
                raise CredentialInvalid("Invalid signature")
            return
        assert self.keys is not None, "there is an algorithm with public keys"
        kid = header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise CredentialInvalid("Invalid token format")
        found = [key for key in await self.keys.find(kid) if fits(key, algorithm)]
        if not found:
            raise CredentialInvalid(
                "The key of the token is not known.",
                reason=f"no key with the id {str(kid)[:100]!r} for {algorithm}",
            )
        if len(found) > 1:  # ambiguous, and trying all keys would invite attacks
            raise CredentialInvalid(
                "The key of the token is not known.", reason="several keys, and no id (kid)"
            )
        if not self._verifier.verify_public(token, algorithm, found[0]):
            raise CredentialInvalid("Invalid signature")

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        now, leeway, section = self._clock(), self._section.leeway, self._section
        expires_at = _read_time(claims, "exp")
        if expires_at is None:
            raise CredentialInvalid("Token missing expiration")
        if expires_at + leeway < now:
            raise CredentialInvalid("Token expired")
        not_before = _read_time(claims, "nbf")
        if not_before is not None and not_before - leeway > now:
            raise CredentialInvalid("Token is not valid yet")
        issued_at = _read_time(claims, "iat")
        if issued_at is not None and issued_at > now + max(leeway, _ISSUED_AHEAD):
            raise CredentialInvalid("Token issued in the future")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if section.audience and not any(one in section.audience for one in named):
            raise CredentialInvalid(
                "Invalid audience", reason=f"the audience is {str(audience)[:100]!r}"
            )
        if section.issuer and claims.get("iss") != section.issuer:
            raise CredentialInvalid(
                "Invalid issuer", reason=f"the issuer is {str(claims.get('iss'))[:100]!r}"
            )


def fits(key: Jwk, algorithm: str) -> bool:
    """Return whether a key may verify signatures of an algorithm."""
    if key.get("kty") != _KINDS[algorithm[:2]] or key.get("alg", algorithm) != algorithm:
        return False
    operations = key.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return False
    return key.get("crv") == _CURVES.get(algorithm)


class _Parts(NamedTuple):
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


class _SignatureVerifier:
    """Verifies signatures by PyJWT, which is imported on first use."""

    def __init__(self, algorithms: Sequence[str]) -> None:
        try:
            import jwt
        except ModuleNotFoundError as error:
            raise MissingPackage("Signing in with JWT", "pyjwt", "auth") from error
        self._jwt = jwt
        self._jws = jwt.PyJWS(algorithms=[*algorithms])
        missing = [name for name in algorithms if name not in self._jws.get_algorithms()]
        if missing:
            raise MissingPackage(f"The algorithm {missing[0]}", "cryptography", "auth")
        self._known: dict[tuple[str, str], Any] = {}
        """Recent keys by their JSON, as parsing one takes as long as a verification."""

    def verify_shared(self, token: str, algorithm: str, secret: bytes) -> bool:
        """Return `True` if the token's HMAC is valid."""
        return self._verify(token, algorithm, secret)

    def verify_public(self, token: str, algorithm: str, key: Jwk) -> bool:
        """Return `True` if the token's signature is valid for a public key."""
        public = self._find_key(key, algorithm)
        return public is not None and self._verify(token, algorithm, public)

    def can_use(self, key: Jwk, algorithm: str) -> bool:
        """Return whether a key can verify signatures of an algorithm."""
        return fits(key, algorithm) and self._find_key(key, algorithm) is not None

    def _find_key(self, key: Jwk, algorithm: str) -> Any:
        place = (algorithm, repr(sorted(key.items(), key=lambda item: item[0])))
        if place not in self._known:
            if len(self._known) >= 100:
                self._known.clear()
            self._known[place] = self._read_key(key, algorithm)
        return self._known[place]

    def _read_key(self, key: Jwk, algorithm: str) -> Any:
        """Return a parsed key, or `None` if it cannot be used, which is logged."""
        public = {name: value for name, value in key.items() if name not in _PRIVATE_FIELDS}
        try:
            found = self._jwt.PyJWK(public, algorithm).key
        except self._jwt.PyJWTError as error:
            logger.error("The key %r of tokens cannot be read: %s", key.get("kid"), error)
            return None
        bits = getattr(found, "key_size", None)
        if key.get("kty") == "RSA" and isinstance(bits, int) and bits < _LEAST_RSA_BITS:
            logger.error(
                "The key %r of tokens has only %d bits: it is not used.", key.get("kid"), bits
            )
            return None
        return found

    def _verify(self, token: str, algorithm: str, key: Any) -> bool:
        try:
            self._jws.decode_complete(token, key, algorithms=[algorithm])
        except self._jwt.PyJWTError:
            return False
        return True


_PRIVATE_FIELDS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def _find_file(section: JwtSettings) -> Path | None:
    """Return the absolute path of the key file, or `None` if keys come from a URL."""
    has_file = section.jwks and "://" not in section.jwks
    return Path(section.jwks).absolute() if has_file else None


def _build_keys(section: JwtSettings, file: Path | None) -> KeySet:
    if file is not None:
        return KeySet(FileKeys(file), ttl=min(section.keys_ttl, 60.0))
    if not (section.jwks or section.issuer):
        raise ConfigurationFailed(
            "access.authenticate names jwt, and there are no keys to verify tokens with.",
            hint="Set jwt.issuer, such as https://login.example.com/, or jwt.jwks, a URL or a "
            "file; or jwt.secret and jwt.algorithms: [HS256].",
        )
    return KeySet(UrlKeys(section.jwks, issuer=section.issuer), ttl=section.keys_ttl)


def _split(token: str) -> _Parts:
    """Return the unverified header and claims. Raises `CredentialInvalid`."""
    values: list[Any] = []
    try:
        for part in token.split(".")[:2]:
            data = part.encode("ascii")
            values.append(loads(urlsafe_b64decode(data + b"=" * (-len(data) % 4))))
    except (ValueError, RecursionError):
        raise CredentialInvalid("Invalid token format") from None
    if not all(isinstance(value, dict) for value in values):
        raise CredentialInvalid("Invalid token format")
    return _Parts(values[0], values[1])


def _read_time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise CredentialInvalid(f"Invalid {name} in the token")
    return float(value)


def _find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name or its dotted path, or `None`."""
    if not name or name in claims:
        return claims.get(name)
    value: Any = claims
    for part in name.split("."):
        value = cast("dict[str, Any]", value).get(part) if isinstance(value, dict) else None
    return value


def _list_words(claims: Mapping[str, Any], name: str) -> Sequence[str]:
    """Return a claim as a list of strings; a string is split into words, a missing one is empty.

    Raises `CredentialInvalid` for any other value, as an empty list would mean the default roles.
    """
    value = _find_claim(claims, name)
    if value is None:
        return []
    if isinstance(value, str):
        return value.replace(",", " ").split()[:_MOST_ROLES]
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    words = [item for item in items if isinstance(item, str)]
    if len(words) < len(items):
        raise CredentialInvalid(
            "The roles or scopes of the token cannot be read.",
            reason=f"the claim {name!r} is no list of texts: {str(value)[:100]!r}",
        )
    return words[:_MOST_ROLES]
