"""Credentials for WebSockets of CopilotKit's frontends, as browsers send no login headers there.

A code identifies the topic of an owner, and a token opens the socket. Both are signed with the
secret that all processes share, and neither is stored.
"""

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NoBase64
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import CredentialInvalid
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.security.quota import QuotaExceeded

_MOST = 10_000
"""Maximum number of streams in one process: each costs some kilobytes."""

_RETRY = 30.0


def find_subject(identity: Identity) -> str:
    """Return the subject of the limit: the authenticated user, or the client's address."""
    return identity.owner or f"address:{identity.address}"


class OpenStreams:
    """Counts open streams. A `most_per_user` of 0 removes the limit per user."""

    def __init__(self, most_per_user: int) -> None:
        self._most_per_user = most_per_user
        self._open: Counter[str] = Counter()
        self._total = 0

    def widen(self, factor: int) -> "OpenStreams":
        """Return another counter, with a limit per user that is `factor` times as high."""
        return OpenStreams(self._most_per_user * factor)

    @contextmanager
    def enter(self, subject: str) -> Generator[None]:
        """Count a stream while the context is open. Raises `QuotaExceeded`."""
        if self._most_per_user and self._open[subject] >= self._most_per_user:
            raise QuotaExceeded(
                f"You have {self._most_per_user} pages with live thread lists open, which is the "
                "limit. Close some of them.",
                retry_after=_RETRY,
                hint="The setting is limits.thread_streams_per_user.",
            )
        if self._total >= _MOST:
            raise QuotaExceeded(
                "The server has reached its limit of live thread lists. Please try again later.",
                retry_after=_RETRY,
                hint=f"There are {_MOST} in this process.",
            )
        self._open[subject] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._open[subject] -= 1
            if not self._open[subject]:
                del self._open[subject]


LIFETIME = 4 * 3600.0
"""Lifetime of a token, in seconds; a frontend that reconnects reuses its token."""

_LONGEST = 4096
"""Maximum length of a token, in characters; it contains the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPass:
    """The content of a token: owner, subject of the limit, and Unix times of issue and expiry."""

    owner: str
    subject: str
    issued_at: float
    expires_at: float


class JoinTokens:
    """Creates and verifies tokens. `load_secret` returns the secret; an empty one is replaced."""

    def __init__(
        self,
        load_secret: Callable[[], Awaitable[str]],
        *,
        clock: Callable[[], float] = time.time,
        lifetime: float = LIFETIME,
    ) -> None:
        self._load_secret = load_secret
        self._clock = clock
        self._lifetime = lifetime
        self._key = b""
        self._process = token_hex(4)
        """Random part of this process's codes, so that a frontend that reconnects elsewhere sees a
        new code and reloads."""

    async def make_code(self, owner: str) -> str:
        """Return the code of an owner's topic. Raises `StoreFailed`."""
        text = f"{int(self._clock() // self._lifetime):x}-{self._process}"
        return f"{text}-{await self._sign(f'code {text} {owner}')}"

    async def is_code(self, code: str, owner: str) -> bool:
        """Return `True` if a code belongs to this owner, whichever process created it."""
        text, _, signature = code.rpartition("-")
        return hmac.compare_digest(
            (await self._sign(f"code {text} {owner}")).encode(),
            signature.encode(errors="replace"),
        )

    async def make_token(self, identity: Identity) -> str:
        """Return a token for a caller; it expires with the caller's credential at the latest."""
        now = self._clock()
        expires_at = min(now + self._lifetime, identity.expires_at or float("inf"))
        claims = [identity.owner or "", find_subject(identity), now, expires_at]
        text = urlsafe_b64encode(dumps(claims)).decode().rstrip("=")
        return f"{text}.{await self._sign(f'token {text}')}"

    async def read_token(self, token: str) -> JoinPass:
        """Return the content of a token. Raises `CredentialInvalid`."""
        text, _, signature = token[:_LONGEST].partition(".")
        expected = await self._sign(f"token {text}")
        if not hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
            raise CredentialInvalid("The token of this socket was not issued by this server.")
        try:
            owner, subject, issued_at, expires_at = loads(urlsafe_b64decode(text + "=="))
        except (ValueError, NoBase64) as error:  # a token of another version
            raise CredentialInvalid("The token of this socket cannot be read.") from error
        if expires_at <= self._clock():
            raise CredentialInvalid("The token of this socket has expired.")
        return JoinPass(owner=owner, subject=subject, issued_at=issued_at, expires_at=expires_at)

    async def _sign(self, text: str) -> str:
        if not self._key:
            # without a secret in the store, only this process can verify its tokens
            secret = await self._load_secret() or token_hex(32)
            self._key = hmac.digest(secret.encode(), b"copilot-runtime: sockets of pages", "sha256")
        signature = hmac.digest(self._key, text.encode(errors="replace"), "sha256")
        return urlsafe_b64encode(signature).decode().rstrip("=").replace("-", "~")
