"""Credentials of every kind, right and wrong, and an identity provider on loopback."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.api.identity import Identity
from copilot_runtime.extensions.access.api_keys.key import ApiKey, KeyStore, generate_key
from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
from copilot_runtime.extensions.access.limits.limiter import Limiter
from copilot_runtime.extensions.access.limits.redis import RedisCounters
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.access.settings import LimitSettings
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, Parrot, serving

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


WAYS = ("api_keys", "jwt", "service_tokens", "proxy")
KEY = make_key("k1")
ROLES = {"guest": ["threads:read"]}


@dataclass(frozen=True)
class Entrance:
    """A server, and who may come in by which headers."""

    port: int
    keys: SqliteKeys
    runtime: CopilotRuntime

    def browser(self, **headers: str) -> Browser:
        return Browser(self.port, headers={n.replace("_", "-"): v for n, v in headers.items()})

    def bearer(self, token: str) -> Browser:
        return self.browser(authorization=f"Bearer {token}")

    async def sign_in(
        self, way: str, user: str, tenant: str = "", roles: Sequence[str] = ()
    ) -> Browser:
        """Return a browser of somebody, by one of the ways. A service has no tenant."""
        match way:
            case "api_keys":
                return self.bearer(await issue_key(self.keys, user, tenant, roles=roles))
            case "jwt":
                claims: Mapping[str, Any] = {"sub": user, "org": tenant, "roles": [*roles]}
                return self.bearer(KEY.sign(exp=time.time() + 3600, **claims))
            case "proxy":
                return self.browser(x_forwarded_user=user, x_tenant=tenant, x_roles=",".join(roles))
            case _:
                signer = ServiceTokenSigner(user, [SECRET], form="simple")
                return self.bearer(signer.sign())


def settings_of(path: Path, **more: Any) -> Settings:
    jwks = write_jwks(path / "jwks.json", KEY)
    section: Mapping[str, Any] = {
        "access": {"authenticate": WAYS, "roles": ROLES},
        "api_keys": {"store": f"sqlite:{path}/access.db"},
        "jwt": {"issuer": ISSUER, "audience": [AUDIENCE], "jwks": jwks},
        "proxy": {
            "sign_in_addresses": ["127.0.0.1"],
            "tenant_header": "x-tenant",
            "roles_header": "x-roles",
        },
        "service_tokens": {"secrets": [SECRET], "form": "simple", "lifetime": 3600},
        "threads": "memory",
    }
    return Settings(**{**section, **more})


@asynccontextmanager
async def entering(
    path: Path, adapter: Any = None, settings: Settings | None = None, **options: Any
) -> AsyncGenerator[Entrance, None]:
    """Serve a runtime with every way to sign in."""
    settings = settings or settings_of(path)
    runtime = CopilotRuntime(adapter or Parrot(), settings=settings, **options)
    keys = SqliteKeys(path / "access.db")
    async with serving(runtime.app(path=PATH), proxy_headers=False) as port:
        yield Entrance(port, keys, runtime)
    await keys.aclose()


SECTION = LimitSettings.model_validate({"runs_at_once_per_user": 2})
ADA = Identity(user="ada")
LEASE_SECONDS = 0.6


async def take_places(url: str) -> None:
    """Take the places of two runs of Ada, and hold them."""
    limiter = Limiter(SECTION, RedisCounters(url), lease_seconds=LEASE_SECONDS)
    for run in ("r1", "r2"):
        await limiter.admit_run(ADA, ADA.owner, run)
    sys.stdout.write("taken\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(take_places(sys.argv[1]))
