"""Credentials of every kind, right and wrong, and an identity provider on loopback."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from copilot_runtime.extensions.access.api_keys.key import ApiKey, KeyStore, generate_key

ISSUER = "https://login.example.com/"
AUDIENCE = "copilot"
FAR = 4_102_444_800
"""The year 2100: what is made once may be used much later, on a machine that is busy."""
SECRET = "a secret of thirty-two characters"


@dataclass(frozen=True)
class SigningKey:
    """A key pair of an identity provider."""

    kid: str
    algorithm: str
    private: Any

    @property
    def public(self) -> dict[str, Any]:
        kinds: dict[str, Any] = {"R": RSAAlgorithm, "E": ECAlgorithm}
        kind = OKPAlgorithm if self.algorithm == "EdDSA" else kinds[self.algorithm[0]]
        key = json.loads(kind.to_jwk(self.private.public_key()))
        return {**key, "kid": self.kid, "use": "sig", "alg": self.algorithm}

    def sign(self, _headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token that is good for long, but for what is given; None leaves one out."""
        every = {"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": FAR, **claims}
        every = {name: value for name, value in every.items() if value is not None}
        headers = {"kid": self.kid, **(_headers or {})}
        return jwt.encode(every, self.private, self.algorithm, headers=headers)


@cache
def make_key(kid: str, algorithm: str = "RS256") -> SigningKey:
    """Return the key of a name: making one of RSA takes a while."""
    match algorithm:
        case "ES256":
            return SigningKey(kid, algorithm, ec.generate_private_key(ec.SECP256R1()))
        case "EdDSA":
            return SigningKey(kid, algorithm, ed25519.Ed25519PrivateKey.generate())
        case _:
            return SigningKey(kid, algorithm, rsa.generate_private_key(65537, 2048))


def write_jwks(path: Path, *keys: SigningKey) -> str:
    """Write keys into a file, and return its path."""
    path.write_bytes(encode_jwks(keys))
    return str(path)


def encode_jwks(keys: Sequence[SigningKey]) -> bytes:
    return json.dumps({"keys": [key.public for key in keys]}).encode()


@dataclass
class Provider:
    """An identity provider: its keys, and what it was asked for."""

    port: int = 0
    keys: list[SigningKey] = field(default_factory=list[SigningKey])
    paths: list[str] = field(default_factory=list[str])
    status: int = 200
    jwks: bytes | None = None
    issuer: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str) -> bytes:
        self.paths.append(path)
        if path.endswith("/openid-configuration"):
            document = {"issuer": self.issuer or self.url, "jwks_uri": f"{self.url}/keys"}
            return json.dumps(document).encode()
        return encode_jwks(self.keys) if self.jwks is None else self.jwks


@asynccontextmanager
async def providing(*keys: SigningKey) -> AsyncGenerator[Provider, None]:
    """Serve the keys of an identity provider over HTTP."""
    provider = Provider(keys=[*keys])

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = provider.answer(head.split(b" ")[1].decode())
        start = f"HTTP/1.1 {provider.status} X\r\ncontent-length: {len(body)}\r\n"
        writer.write(start.encode() + b"connection: close\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        provider.port = server.sockets[0].getsockname()[1]
        yield provider


async def issue_key(store: KeyStore, user: str, tenant: str = "", **fields: Any) -> str:
    """Keep a new API key, and return what a program sends."""
    secret = generate_key()
    await store.add(
        ApiKey(
            id=secret.id,
            name=user,
            user=user,
            tenant=tenant,
            created_at=time.time(),
            salt=secret.salt,
            hash=secret.hash,
            **fields,
        )
    )
    return secret.text
