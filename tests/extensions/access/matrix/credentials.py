"""Who asks, by each kind of credential, and every form in which a credential is wrong."""

import base64
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner, TokenForm
from tests.extensions.access.credentials import KEY, SECRET, issue_key, make_key
from tests.extensions.access.matrix.callers import Asker, Headers
from tests.extensions.access.matrix.world import PROXY, World

Make = Callable[[World], Awaitable[Asker]]
Signing = Callable[[str, bytes], str]


@dataclass(frozen=True)
class SigningAsker(Asker):
    """A service, which signs each request; or what it should not have signed."""

    sign: Signing = lambda _operation, _body: ""

    def add_credential(self, operation: str, body: bytes) -> Headers:
        return [("authorization", f"Bearer {self.sign(operation, body)}")]


def sign_with(
    service: str = "shop", secret: str = SECRET, form: TokenForm = "bound", late: float = 0
) -> Signing:
    signer = ServiceTokenSigner(service, [secret], form=form, clock=lambda: time.time() - late)
    return signer.sign


def serve_with(world: World, sign: Signing) -> Asker:
    return SigningAsker(world.app, world.nobody.channel, sign=sign)


async def _sign_in_by_proxy(world: World, name: str, tenant: str) -> Asker:
    headers = [("x-forwarded-user", name), ("x-tenant", tenant)]
    return replace(world.nobody, headers=headers, address=PROXY, sent=[])


async def sign_in(world: World, kind: str, name: str, tenant: str) -> Asker:
    """Return somebody by a good credential of a kind. Services and sessions have no choice."""
    match kind:
        case "jwt":
            return world.token(name, tenant)
        case "api_key":
            return await world.key(name, tenant)
        case "proxy":
            return await _sign_in_by_proxy(world, name, tenant)
        case "service":
            return serve_with(world, sign_with(name))
        case _:
            return world.nobody.with_headers(("x-session", f"{name}-session"))


KINDS = ("jwt", "api_key", "proxy", "hook", "service")
"""Kinds of credentials, of which each has good ones."""


def _with(token: str) -> Make:
    async def make(world: World) -> Asker:
        return world.nobody.with_headers(("authorization", f"Bearer {token}"))

    return make


def _claims(**claims: Any) -> dict[str, Any]:
    return {"sub": "ann", "org": "north", "exp": time.time() + 3600, **claims}


def _jwt(*, key: Any = KEY, headers: dict[str, Any] | None = None, **claims: Any) -> Make:
    return _with(key.sign(headers, **_claims(**claims)))


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unsigned(algorithm: str) -> Make:
    claims = {"iss": "https://login.example.com/", "aud": "copilot", **_claims()}
    return _with(f"{_part({'alg': algorithm, 'kid': 'k1'})}.{_part(claims)}.")


def _signed_with_public_key() -> Make:
    """Return a token of HS256 whose secret is the public key, which everybody has."""
    import hmac

    pem = KEY.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": "https://login.example.com/", "aud": "copilot", **_claims()}
    text = f"{_part({'alg': 'HS256', 'kid': 'k1'})}.{_part(claims)}"
    signature = hmac.digest(pem, text.encode(), "sha256")
    return _with(f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}")


def _tampered() -> Make:
    head, _, signature = KEY.sign(**_claims(sub="eve")).split(".")
    claims = {"iss": "https://login.example.com/", "aud": "copilot", **_claims()}
    return _with(f"{head}.{_part(claims)}.{signature}")


def _key(
    change: Callable[[str], str] = str, *, header: str = "authorization", **fields: Any
) -> Make:
    async def make(world: World) -> Asker:
        text = change(await issue_key(world.keys, "ann", "north", **fields))
        value = f"Bearer {text}" if header == "authorization" else text
        return world.nobody.with_headers((header, value))

    return make


async def _revoked(world: World) -> Asker:
    text = await issue_key(world.keys, "ann", "north")
    await world.keys.revoke(text.split("_")[1], time.time())
    return world.nobody.with_headers(("authorization", f"Bearer {text}"))


def _keep(operation: str, body: bytes) -> tuple[str, bytes]:
    return operation, body


def _service(change: Callable[[str, bytes], tuple[str, bytes]] = _keep, **given: Any) -> Make:
    signing = sign_with(**given)

    async def make(world: World) -> Asker:
        return serve_with(world, lambda operation, body: signing(*change(operation, body)))

    return make


async def _twice(world: World) -> Asker:
    token = KEY.sign(**_claims())
    other = KEY.sign(**_claims(sub="eve"))
    both = [("authorization", f"Bearer {one}") for one in (token, other)]
    return world.nobody.with_headers(*both)


async def _untrusted_proxy(world: World) -> Asker:
    headers = [("x-forwarded-user", "ann"), ("x-tenant", "north"), ("x-roles", "operator")]
    return replace(world.nobody, headers=headers, address="10.0.0.2", sent=[])


async def _proxy_twice(world: World) -> Asker:
    headers = [("x-forwarded-user", "eve"), ("x-forwarded-user", "ann"), ("x-tenant", "north")]
    return replace(world.nobody, headers=headers, address=PROXY, sent=[])


async def _nobody(world: World) -> Asker:
    return replace(world.nobody, sent=[])


async def _wrong_session(world: World) -> Asker:
    return world.nobody.with_headers(("x-session", "ann-session "[:-2]))


async def _basic(world: World) -> Asker:
    return world.nobody.with_headers(("authorization", "Basic YW5uOmFubg=="))


BAD: Mapping[str, Make] = {
    "no credential": _nobody,
    "a token signed by another key": _jwt(key=make_key("another"), headers={"kid": "k1"}),
    "a token without a signature": _unsigned("none"),
    "a token without a signature, in capitals": _unsigned("NONE"),
    "a token signed with the public key": _signed_with_public_key(),
    "a token that was changed": _tampered(),
    "a token that has expired": _jwt(exp=time.time() - 120),
    "a token without an end": _jwt(exp=None),
    "a token that is not valid yet": _jwt(nbf=time.time() + 3600),
    "a token for another audience": _jwt(aud="another"),
    "a token of another issuer": _jwt(iss="https://evil.example.com/"),
    "a token without a tenant": _jwt(org=None),
    "a token of an unknown key": _jwt(headers={"kid": "unknown"}),
    "a token that brings its own key": _jwt(
        key=make_key("another"), headers={"kid": "k1", "jwk": make_key("another").public}
    ),
    "a token with a demand": _jwt(headers={"crit": ["b64"], "b64": False}),
    "a token of nonsense": _with("a.b.c"),
    "a key with another secret": _key(lambda text: f"{text[:-4]}AAAA"),
    "a key that nobody made": _with("cpk_0123456789abcdef_" + "x" * 43),
    "a key that has expired": _key(expires_at=1.0),
    "a key that was revoked": _revoked,
    "a wrong key in its own header": _key(lambda text: text[:-1], header="x-api-key"),
    "a service token for another method": _service(
        lambda operation, body: (f"PUT {operation}", body)
    ),
    "a service token for another body": _service(lambda operation, body: (operation, body + b" ")),
    "a service token that is late": _service(late=61),
    "a service token from the future": _service(late=-60),
    "a service token of another secret": _service(secret=SECRET[::-1]),
    "a service token of the other form": _service(form="simple"),
    "a header of a proxy from elsewhere": _untrusted_proxy,
    "a header of a proxy that comes twice": _proxy_twice,
    "an Authorization that comes twice": _twice,
    "a wrong session": _wrong_session,
    "a password": _basic,
    "an empty token": _with(""),
    "a token of a megabyte": _with("A" * 1_000_000),
    "a token of three megabytes of JSON": _with(".".join(["e30" * 333_000] * 3)),
}
"""Every way to be nobody."""
