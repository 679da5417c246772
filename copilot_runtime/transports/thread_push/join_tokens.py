"""What lets a page of CopilotKit open a WebSocket: browsers send no headers of a login there.

A code names the topic of an owner, a token opens the socket. Both are signed with the secret that
all processes share, and neither is stored.
"""

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NoBase64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from secrets import token_hex

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import CredentialInvalid
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.transports.thread_push.open_streams import find_subject

LIFETIME = 4 * 3600.0
"""Seconds for which a token opens sockets: a page uses the same one when it comes back."""

_LONGEST = 4096
"""Characters of a token; the owner is in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPass:
    """Whose changes a socket may show, who is counted, since when and until when (since 1970)."""

    owner: str
    subject: str
    issued_at: float
    expires_at: float


class JoinTokens:
    """Makes and reads them. `load_secret` returns the secret; an empty one is replaced."""

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
        """Part of all codes: a page that lost its socket asks anew where the code is another."""

    async def make_code(self, owner: str) -> str:
        """Return the code of an owner's topic. Raises `StoreFailed`."""
        text = f"{int(self._clock() // self._lifetime):x}-{self._process}"
        return f"{text}-{await self._sign(f'code {text} {owner}')}"

    async def is_code(self, code: str, owner: str) -> bool:
        """Return whether a code is one of this owner, of whatever process and time."""
        text, _, signature = code.rpartition("-")
        return hmac.compare_digest(
            (await self._sign(f"code {text} {owner}")).encode(),
            signature.encode(errors="replace"),
        )

    async def make_token(self, identity: Identity) -> str:
        """Return a token for somebody, which expires with their credential at the latest."""
        now = self._clock()
        expires_at = min(now + self._lifetime, identity.expires_at or float("inf"))
        claims = [identity.owner or "", find_subject(identity), now, expires_at]
        text = urlsafe_b64encode(dumps(claims)).decode().rstrip("=")
        return f"{text}.{await self._sign(f'token {text}')}"

    async def read_token(self, token: str) -> JoinPass:
        """Return what a token allows. Raises `CredentialInvalid`."""
        text, _, signature = token[:_LONGEST].partition(".")
        expected = await self._sign(f"token {text}")
        if not hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
            raise CredentialInvalid("The token of this socket is none of this server.")
        try:
            owner, subject, issued_at, expires_at = loads(urlsafe_b64decode(text + "=="))
        except (ValueError, NoBase64) as error:  # one of another version
            raise CredentialInvalid("The token of this socket cannot be read.") from error
        if expires_at <= self._clock():
            raise CredentialInvalid("The token of this socket has expired.")
        return JoinPass(owner=owner, subject=subject, issued_at=issued_at, expires_at=expires_at)

    async def _sign(self, text: str) -> str:
        if not self._key:
            # without a secret of the store, only this process knows its own
            secret = await self._load_secret() or token_hex(32)
            self._key = hmac.digest(secret.encode(), b"copilot-runtime: sockets of pages", "sha256")
        signature = hmac.digest(self._key, text.encode(errors="replace"), "sha256")
        return urlsafe_b64encode(signature).decode().rstrip("=").replace("-", "~")
