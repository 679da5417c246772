"""Short-lived tokens with which services authenticate to each other, signed with a shared secret.

The form of Copilot-LD is `base64(service:milliseconds:hex HMAC-SHA256)`. An intercepted token can
be used for a minute for any call. So, by default, a token is bound to one method and one body, and
can be used once: `base64(service:milliseconds:nonce:hex SHA-256 of the body:hex HMAC-SHA256)`.
"""

import binascii
import hmac
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from secrets import token_hex
from typing import Literal, NamedTuple, Protocol

from copilot_runtime.base.errors import AuthenticationFailed, ConfigurationFailed

TokenForm = Literal["bound", "simple"]
"""`bound` to one method and body, or `simple`, for all calls, as in Copilot-LD."""

SHORTEST_SECRET = 32
"""Characters."""

LIFETIME = 60.0
"""Seconds, as in Copilot-LD."""

_AHEAD = 5.0
"""Maximum seconds by which another machine's clock may be ahead."""
_LONGEST = 2_000
"""Characters of a token."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_PURPOSE = b"copilot-runtime service token 1\n"
"""Prefix of the signed text of bound tokens, so that signatures of other forms are not valid."""


FORGOTTEN = "Token may have been used before: used tokens were forgotten. Sign a new one"
"""The error for a token that was signed before the store of nonces was started."""


class ServiceTokenInvalid(AuthenticationFailed):
    """A service token is invalid, expired or was used before."""


class ServiceClaims(NamedTuple):
    """The content of a token with a valid signature."""

    service: str
    milliseconds: int
    nonce: str = ""
    digest: str = ""

    @property
    def is_bound(self) -> bool:
        """`True` if the token is bound to one method and one body."""
        return bool(self.nonce)

    def check_body(self, body: bytes) -> None:
        """Raise `ServiceTokenInvalid` if the body is not the signed one."""
        if self.is_bound and not hmac.compare_digest(self.digest, sha256(body).hexdigest()):
            raise ServiceTokenInvalid("Token is for another body")


class ReplayStore(Protocol):
    """A store of the nonces of used tokens."""

    async def add(self, nonce: str, signed_at: float, expires_at: float) -> bool:
        """Store a nonce until a time in seconds since 1970; return `True` if it is new.

        Raises `ServiceTokenInvalid` if the token was signed before the store was started.
        """
        ...


class MemoryReplays:
    """Nonces in memory. A full store refuses tokens, as it must not drop nonces.

    Tokens signed before the process started are refused, as an earlier process may have used them.
    """

    def __init__(self, most: int = 200_000, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._began_at = round(clock(), 3)
        self._ends: dict[str, float] = {}

    async def add(self, nonce: str, signed_at: float, expires_at: float) -> bool:
        """Store a nonce; return `True` if it is new. Raises `ServiceTokenInvalid`, also if full."""
        if signed_at < self._began_at:
            raise ServiceTokenInvalid(FORGOTTEN)
        now = self._clock()
        while self._ends and self._ends[first := next(iter(self._ends))] < now:
            del self._ends[first]
        if nonce in self._ends:
            return False
        if len(self._ends) >= self._most:
            raise ServiceTokenInvalid("Too many service tokens at once; try again in a minute.")
        self._ends[nonce] = expires_at
        return True


class ServiceTokenSigner:
    """Signs tokens of one service, with the first of its `secrets`."""

    def __init__(
        self,
        service: str,
        secrets: Sequence[str],
        *,
        form: TokenForm = "bound",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if _NAME.fullmatch(service) is None:
            raise ConfigurationFailed(
                f"{service!r} cannot be the name of a service.",
                hint="It has letters, digits and . _ - /, and no colon, which ends it in a token.",
            )
        self._service = service
        self._secret = _check_secrets(secrets)[0]
        self._form = form
        self._clock = clock

    def sign(self, method: str = "", body: bytes = b"") -> str:
        """Return a token for a call: of gRPC, `/package.Service/Method`; of HTTP, `POST path`."""
        milliseconds = round(self._clock() * 1000)
        if self._form == "simple":
            return _encode(self._secret, f"{self._service}:{milliseconds}", b"")
        text = f"{self._service}:{milliseconds}:{token_hex(16)}:{sha256(body).hexdigest()}"
        return _encode(self._secret, text, _PURPOSE + method.encode() + b"\n")


class ServiceTokenVerifier:
    """Checks tokens of all services that have one of the `secrets`.

    To rotate them, put the new one first here and there, and take the old one away a minute later.
    `form` is the only one that is accepted.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        *,
        form: TokenForm = "bound",
        lifetime: float = LIFETIME,
        replays: ReplayStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secrets = _check_secrets(secrets)
        self._form = form
        self._lifetime = round(lifetime * 1000)
        self.replays: ReplayStore = replays or MemoryReplays(clock=clock)
        self._clock = clock

    async def verify(self, token: str, method: str = "", body: bytes = b"") -> str:
        """Return the service that made a token. Raises `ServiceTokenInvalid`."""
        claims = self.read(token, method)
        claims.check_body(body)
        await self.use(claims)
        return claims.service

    def read(self, token: str, method: str = "") -> ServiceClaims:
        """Verify a token except for its body, and return its claims. Raises
        `ServiceTokenInvalid`.
        """
        parts = _split(token)
        if len(parts) != (3 if self._form == "simple" else 5) or not all(map(str.strip, parts)):
            raise ServiceTokenInvalid("Invalid token format")
        if not (parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) <= 15):
            raise ServiceTokenInvalid("Invalid timestamp in token")
        claims = ServiceClaims(parts[0], int(parts[1]), *parts[2:-1])
        age = round(self._clock() * 1000) - claims.milliseconds
        if age > self._lifetime:
            raise ServiceTokenInvalid("Token has expired")
        if age < -_AHEAD * 1000:
            raise ServiceTokenInvalid(
                "Token is from the future: compare the clocks of both machines"
            )
        purpose = b"" if self._form == "simple" else _PURPOSE + method.encode() + b"\n"
        text = ":".join(parts[:-1])
        found = [hmac.compare_digest(_sign(one, text, purpose), parts[-1]) for one in self._secrets]
        if not any(found):
            raise ServiceTokenInvalid(_explain_signature(method, is_bound=claims.is_bound))
        return claims

    async def use(self, claims: ServiceClaims) -> None:
        """Mark a token as used. Raises `ServiceTokenInvalid` if it was used before."""
        if not claims.is_bound:
            return
        signed_at = claims.milliseconds / 1000
        expires_at = signed_at + self._lifetime / 1000 + _AHEAD
        nonce = f"{claims.service}:{claims.nonce}"
        if not await self.replays.add(nonce, signed_at, expires_at):
            raise ServiceTokenInvalid("Token was used before")


def is_service_token(token: str) -> bool:
    """Return `True` if a text has the format of a service token, valid or not."""
    try:
        return len(_split(token)) in (3, 5)
    except ServiceTokenInvalid:
        return False


def _explain_signature(method: str, *, is_bound: bool) -> str:
    """Return a sentence about a wrong signature; that of `simple` is in the words of Copilot-LD."""
    words = "Invalid token signature"
    if not is_bound:
        return words
    # over HTTP, a method is a path with ids: keep those out of responses and logs
    than = f" than {method[:200]!r}" if method.startswith("/") else ""
    return f"{words}: signed with another secret, or for another method{than}"


def _split(token: str) -> list[str]:
    if not token:
        raise ServiceTokenInvalid("Token must be a non-empty string")
    if len(token) > _LONGEST:
        raise ServiceTokenInvalid("Invalid token format")
    try:
        return b64decode(token.encode(), validate=True).decode("ascii").split(":")
    except (binascii.Error, ValueError):
        raise ServiceTokenInvalid("Invalid token format") from None


def _encode(secret: bytes, text: str, purpose: bytes) -> str:
    return b64encode(f"{text}:{_sign(secret, text, purpose)}".encode()).decode()


def _sign(secret: bytes, text: str, purpose: bytes) -> str:
    return hmac.digest(secret, purpose + text.encode(), "sha256").hex()


def _check_secrets(secrets: Sequence[str]) -> list[bytes]:
    if not secrets:
        raise ConfigurationFailed(
            "There is no secret for service tokens.",
            hint="Set service_tokens.secrets: `openssl rand -hex 32` prints one.",
        )
    if (shortest := min(map(len, secrets))) < SHORTEST_SECRET:
        raise ConfigurationFailed(
            f"A secret of service tokens must have {SHORTEST_SECRET} characters or more; one has "
            f"{shortest}.",
            hint="`openssl rand -hex 32` prints one.",
        )
    return [secret.encode() for secret in secrets]
