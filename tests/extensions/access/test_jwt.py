"""Tokens of an identity provider: its keys, its rotations, and what is no token of it."""

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.scheme import (
    AuthenticationUnavailable,
    CredentialInvalid,
)
from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.authentication.jwt import JwtScheme
from copilot_runtime.extensions.access.jwks import FileKeys, KeySet, UrlKeys, parse_keys
from copilot_runtime.extensions.access.settings import JwtSettings
from tests.extensions.access.credentials import (
    AUDIENCE,
    FAR,
    ISSUER,
    SECRET,
    SigningKey,
    encode_jwks,
    make_key,
    providing,
    write_jwks,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

KEY = make_key("k1")


def scheme_of(path: Path, *keys: SigningKey, **settings: Any) -> JwtScheme:
    jwks = write_jwks(path / "jwks.json", *(keys or (KEY,)))
    return JwtScheme(JwtSettings(issuer=ISSUER, audience=(AUDIENCE,), jwks=jwks, **settings))


@in_one_test("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_token_of_the_issuer_is_good(tmp_path: Path, algorithm: str) -> None:
    key = make_key("k", algorithm)
    claims = await scheme_of(tmp_path, key).verify(key.sign())

    assert claims["sub"] == "ada"


@in_one_test(
    ("claims", "why"),
    [
        ({"exp": None}, "Token missing expiration"),
        ({"exp": time.time() - 31}, "Token expired"),
        ({"exp": "soon"}, "Invalid exp"),
        ({"exp": True}, "Invalid exp"),
        ({"exp": -1}, "Invalid exp"),
        ({"exp": 10**300}, "Invalid exp"),
        ({"nbf": FAR - 1}, "not valid yet"),
        ({"iat": FAR - 1}, "Token issued in the future"),
        ({"aud": "another"}, "Invalid audience"),
        ({"aud": None}, "Invalid audience"),
        ({"aud": ["another", 5]}, "Invalid audience"),
        ({"iss": "https://evil.example.com/"}, "Invalid issuer"),
        ({"iss": None}, "Invalid issuer"),
    ],
)
async def test_a_claim_that_is_wrong_is_refused(
    tmp_path: Path, claims: dict[str, Any], why: str
) -> None:
    with pytest.raises(CredentialInvalid, match=why):
        await scheme_of(tmp_path).verify(KEY.sign(**claims))


async def test_clocks_may_differ_a_little_and_an_audience_may_be_one_of_several(
    tmp_path: Path,
) -> None:
    token = KEY.sign(exp=time.time() - 5, nbf=time.time() + 5, aud=["x", AUDIENCE])

    assert (await scheme_of(tmp_path).verify(token))["sub"] == "ada"


def encode(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(data).decode().rstrip("=")


GOOD = KEY.sign()
HEADER, CLAIMS, SIGNATURE = GOOD.split(".")
PUBLIC_PEM = KEY.private.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def forge_hmac(secret: bytes) -> str:
    """Return a token whose "secret" is the public key, as libraries once took it."""
    import hashlib
    import hmac

    text = f"{encode({'alg': 'HS256', 'kid': 'k1'})}.{CLAIMS}"
    return f"{text}.{encode(hmac.digest(secret, text.encode(), hashlib.sha256))}"


@in_one_test(
    "token",
    [
        f"{encode({'alg': 'none'})}.{CLAIMS}.",
        f"{encode({'alg': 'None'})}.{CLAIMS}.{SIGNATURE}",
        f"{encode({'alg': 'nOnE', 'kid': 'k1'})}.{CLAIMS}.{SIGNATURE}",
        forge_hmac(PUBLIC_PEM),
        forge_hmac(b""),
        f"{encode({'alg': 'ES256', 'kid': 'k1'})}.{CLAIMS}.{SIGNATURE}",
        f"{encode({'alg': 'RS512', 'kid': 'k1'})}.{CLAIMS}.{SIGNATURE}",
        f"{encode({'alg': ['RS256'], 'kid': 'k1'})}.{CLAIMS}.{SIGNATURE}",
        f"{encode({'alg': 'RS256', 'kid': ['k1']})}.{CLAIMS}.{SIGNATURE}",
        f"{encode({'alg': 'RS256', 'kid': 'k1', 'crit': ['b64'], 'b64': False})}.{CLAIMS}.x",
        f"{HEADER}.{CLAIMS}.",
        f"{HEADER}.{CLAIMS}.{SIGNATURE[:-8]}",
        f"{HEADER}.{encode({'sub': 'eve', 'exp': time.time() + 60})}.{SIGNATURE}",
        f"{HEADER}.{encode(b'[' * 10_000)}.{SIGNATURE}",
        f"{encode(b'[' * 10_000)}.{CLAIMS}.{SIGNATURE}",
        f"{encode(b'5')}.{CLAIMS}.{SIGNATURE}",
        f"{encode([])}.{encode([])}.{SIGNATURE}",
        "..",
        "a.b.c",
        "\u00e9.\u00e9.\u00e9",
        f"{HEADER}!.{CLAIMS}.{SIGNATURE}",
        make_key("k1-of-somebody-else").sign({"kid": "k1"}),
        KEY.sign({"jwk": KEY.public, "kid": "other"}),
        KEY.sign({"jku": "http://evil.example.com/keys", "kid": "other"}),
    ],
)
async def test_what_the_issuer_has_not_signed_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(CredentialInvalid):
        await scheme_of(tmp_path).verify(token)


async def test_a_secret_is_for_hs256_alone_and_public_keys_for_the_others(tmp_path: Path) -> None:
    both = scheme_of(tmp_path, secret=SECRET, algorithms=("RS256", "HS256"))
    claims = {"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": FAR}

    assert await both.verify(jwt.encode(claims, SECRET, "HS256"))
    assert await both.verify(KEY.sign())
    with pytest.raises(CredentialInvalid, match="Invalid signature"):
        await both.verify(forge_hmac(PUBLIC_PEM))


async def test_keys_are_rotated_without_a_restart() -> None:
    new = make_key("k2")
    async with providing(KEY) as provider:
        keys = KeySet(UrlKeys(provider.url + "/keys"), ttl=3600)
        scheme = JwtScheme(JwtSettings(issuer=ISSUER, jwks=provider.url), keys)
        await scheme.verify(KEY.sign())
        keys._tried_at -= 61  # pyright: ignore[reportPrivateUsage] # a minute later
        provider.keys = [new]

        assert await scheme.verify(new.sign())
        with pytest.raises(CredentialInvalid, match="not known"):
            await scheme.verify(KEY.sign())
        await scheme.aclose()


@pytest.mark.stalls(reason="The test signs 10,000 tokens.")
async def test_ten_thousand_unknown_keys_are_one_more_request_to_the_issuer() -> None:
    async with providing(KEY) as provider:
        scheme = JwtScheme(JwtSettings(issuer=ISSUER, jwks=provider.url + "/keys"))
        await scheme.verify(KEY.sign())
        header, rest = GOOD.split(".", 1)
        for number in range(10_000):
            header = encode({"alg": "RS256", "kid": f"unknown-{number}"})
            with pytest.raises(CredentialInvalid, match="not known"):
                await scheme.verify(f"{header}.{rest}")
        await scheme.aclose()

    assert len(provider.paths) == 1


async def test_the_keys_of_an_issuer_are_found_by_discovery() -> None:
    async with providing(KEY) as provider:
        scheme = JwtScheme(JwtSettings(issuer=provider.url))
        assert await scheme.verify(KEY.sign(iss=provider.url))
        await scheme.aclose()

    assert provider.paths == ["/.well-known/openid-configuration", "/keys"]


async def test_an_issuer_that_says_it_is_another_is_not_believed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with providing(KEY) as provider:
        provider.issuer = "https://evil.example.com"
        scheme = JwtScheme(JwtSettings(issuer=provider.url))
        with pytest.raises(AuthenticationUnavailable):
            await scheme.verify(KEY.sign(iss=provider.url))
        await scheme.aclose()

    assert "says that it is 'https://evil.example.com'" in caplog.text


@in_one_test(
    "jwks",
    [
        b"",
        b"no JSON",
        b"[]",
        b'{"keys": 5}',
        b"[" * 100_000,
        b'{"keys": [' + b",".join([b'{"kid": "x"}'] * 10_000) + b"]}",
        b" " * 2_000_000,
    ],
)
async def test_an_issuer_that_sends_nonsense_locks_nobody_out_who_was_known(
    jwks: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with providing(KEY) as provider:
        keys = KeySet(UrlKeys(provider.url), ttl=0)
        scheme = JwtScheme(JwtSettings(issuer=ISSUER, jwks=provider.url), keys)
        await scheme.verify(KEY.sign())
        keys._tried_at -= 61  # pyright: ignore[reportPrivateUsage]
        keys._read_at -= 61  # pyright: ignore[reportPrivateUsage]
        provider.jwks = jwks

        assert await scheme.verify(KEY.sign())
        await scheme.aclose()

    assert "Those from before are used." in caplog.text


async def test_an_issuer_that_is_down_at_the_start_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with providing(KEY) as provider:
        provider.status = 404
        keys = KeySet(UrlKeys(provider.url), ttl=3600)
        scheme = JwtScheme(JwtSettings(issuer=ISSUER, jwks=provider.url), keys)
        for _ in range(3):
            with pytest.raises(AuthenticationUnavailable):
                await scheme.verify(KEY.sign())
        asked = len(provider.paths)
        keys._tried_at -= 6  # pyright: ignore[reportPrivateUsage] # five seconds later
        provider.status = 200

        assert await scheme.verify(KEY.sign())
        await scheme.aclose()

    assert asked == 1
    assert "answers 404" in caplog.text


def test_keys_that_are_not_for_signatures_are_left_out() -> None:
    keys = [{"kid": "a", "use": "enc"}, {"kid": "b", "use": "sig"}, {"kid": "c"}, 5, None]

    assert [key["kid"] for key in parse_keys(json.dumps({"keys": keys}).encode())] == ["b", "c"]


async def test_a_key_that_is_too_short_verifies_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    short = SigningKey("short", "RS256", rsa.generate_private_key(65537, 1024))
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = short.sign()
    with pytest.raises(CredentialInvalid, match="Invalid signature"):
        await scheme_of(tmp_path, short).verify(token)

    assert "has only 1024 bits" in caplog.text


async def test_a_token_without_the_name_of_its_key_is_good_if_there_is_one_key(
    tmp_path: Path,
) -> None:
    claims = {"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": FAR}
    token = jwt.encode(claims, KEY.private, "RS256")

    assert await scheme_of(tmp_path).verify(token)
    with pytest.raises(CredentialInvalid, match="not known"):
        await scheme_of(tmp_path, KEY, make_key("k2")).verify(token)


@in_one_test(
    ("claims", "roles"),
    [
        ({"roles": ["a", "b"]}, ["a", "b"]),
        ({"roles": "a b,c"}, ["a", "b", "c"]),
        ({"roles": None}, []),
        ({"roles": []}, []),
        ({}, []),
    ],
)
def test_roles_are_a_list_or_words(claims: dict[str, Any], roles: list[str]) -> None:
    scheme = JwtScheme(JwtSettings(secret=SECRET, algorithms=("HS256",)))

    assert [*scheme.identify({"sub": "ada", **claims}).roles] == roles


@in_one_test("value", [7, True, {"a": 1}, [5], ["a", None], [["a"]]])
@in_one_test("name", ["roles", "scope"])
def test_a_token_whose_roles_cannot_be_read_is_refused(name: str, value: Any) -> None:
    scheme = JwtScheme(JwtSettings(secret=SECRET, algorithms=("HS256",), scopes_claim="scope"))
    with pytest.raises(CredentialInvalid, match="cannot be read") as caught:
        scheme.identify({"sub": "ada", "scope": "", name: value})

    assert caught.value.reason == f"the claim {name!r} is no list of texts: {str(value)!r}"
    assert caught.value.identity == Identity(user="ada")


def test_claims_are_found_by_their_whole_name_or_by_a_path() -> None:
    scheme = JwtScheme(
        JwtSettings(
            secret=SECRET,
            algorithms=("HS256",),
            roles_claim="realm_access.roles",
            tenant_claim="https://acme.example/org",
        )
    )
    claims = {
        "sub": "ada",
        "realm_access": {"roles": ["x"]},
        "https://acme.example/org": "acme",
    }

    assert scheme.identify(claims).owner == "tenant:acme/ada"
    assert scheme.identify(claims).roles == ["x"]
    with pytest.raises(CredentialInvalid, match="no tenant"):
        scheme.identify({"sub": "ada"})


@in_one_test("claims", [{}, {"sub": ""}, {"sub": 5}, {"sub": ["ada"]}])
def test_a_token_of_nobody_is_refused(claims: dict[str, Any]) -> None:
    scheme = JwtScheme(JwtSettings(secret=SECRET, algorithms=("HS256",)))
    with pytest.raises(CredentialInvalid, match="no user"):
        scheme.identify(claims)


def test_without_keys_nothing_can_be_verified() -> None:
    with pytest.raises(ConfigurationFailed, match="no keys"):
        JwtScheme(JwtSettings())


async def test_a_file_that_is_not_there_lets_nobody_in(tmp_path: Path) -> None:
    keys = KeySet(FileKeys(str(tmp_path / "none.json")), ttl=60)
    with pytest.raises(AuthenticationUnavailable):
        await keys.find("k1")


class SlowKeys:
    """A source whose answer a test gives: keys, or an error."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        self.asked.set()
        return await self.answer

    async def aclose(self) -> None:
        pass


async def test_whoever_leaves_while_keys_are_read_locks_nobody_else_out() -> None:
    source = SlowKeys()
    keys = KeySet(source, ttl=3600)
    first = asyncio.create_task(keys.find("k1"))
    await source.asked.wait()
    second = asyncio.create_task(keys.find("k1"))
    first.cancel()
    await asyncio.wait((first,))
    source.answer.set_result(encode_jwks([KEY]))

    assert [key["kid"] for key in await second] == ["k1"]
    assert keys.reads == 1


async def test_nobody_who_is_known_waits_for_an_issuer_that_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, source = 0.0, SlowKeys()
    keys = KeySet(source, ttl=60, clock=lambda: now)
    source.answer.set_result(encode_jwks([KEY]))
    await keys.find("k1")
    now, source.answer = 121.0, asyncio.get_running_loop().create_future()
    source.answer.set_exception(OSError("It is down."))
    await keys.find("k1")
    now, source.answer = 127.0, asyncio.get_running_loop().create_future()
    source.asked.clear()
    async with asyncio.timeout(5):  # less than the source may take
        assert await keys.find("k1")
    await source.asked.wait()
    await keys.aclose()

    assert "It is down." in caplog.text


async def test_nobody_waits_while_keys_are_read_again_for_all_at_once() -> None:
    now, source = 0.0, SlowKeys()
    keys = KeySet(source, ttl=60, clock=lambda: now)
    source.answer.set_result(encode_jwks([KEY]))
    await keys.find("k1")
    now, source.answer = 61.0, asyncio.get_running_loop().create_future()
    async with asyncio.timeout(5):  # less than the source may take
        found = [await keys.find("k1") for _ in range(5)]
    source.answer.set_result(encode_jwks([make_key("k2")]))
    new = await keys.find("k2")  # whose key is not known waits for the same attempt

    assert [len(one) for one in (*found, new)] == [1] * 6
    assert await keys.find("k1") == []
    assert keys.reads == 2


async def test_keys_that_are_too_old_are_not_used_before_one_attempt() -> None:
    now, source = 0.0, SlowKeys()
    keys = KeySet(source, ttl=60, clock=lambda: now)
    source.answer.set_result(encode_jwks([KEY]))
    await keys.find("k1")
    now, source.answer = 121.0, asyncio.get_running_loop().create_future()
    source.asked.clear()
    waiting = asyncio.create_task(keys.find("k1"))
    await source.asked.wait()
    source.answer.set_result(encode_jwks([make_key("k2")]))

    assert await waiting == []


async def test_without_keys_all_share_one_attempt_and_its_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = SlowKeys()
    keys = KeySet(source, ttl=60)
    waiting = [asyncio.create_task(keys.find(f"k{number}")) for number in range(5)]
    await source.asked.wait()
    source.answer.set_exception(OSError("It is down."))
    errors = await asyncio.gather(*waiting, keys.find(None), return_exceptions=True)
    with pytest.raises(AuthenticationUnavailable):
        await keys.find("k1")

    assert {type(error) for error in errors} == {AuthenticationUnavailable}
    assert (keys.reads, caplog.text.count("It is down.")) == (1, 1)


@in_one_test(
    "broken",
    [
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": "", "e": ""},
        {"kty": "RSA"},
    ],
)
async def test_a_key_that_is_none_verifies_nothing(
    tmp_path: Path, broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    scheme = scheme_of(tmp_path)
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**broken, "kid": "k1"}]}))
    with pytest.raises(CredentialInvalid, match="Invalid signature"):
        await scheme.verify(GOOD)

    assert "The key 'k1' of tokens" in caplog.text


async def test_an_issuer_behind_tls_cannot_name_keys_without_it() -> None:
    keys = UrlKeys(issuer="https://login.example.com")
    document = {"issuer": "https://login.example.com", "jwks_uri": "http://login.example.com/keys"}

    async def get(url: str) -> bytes:
        return json.dumps(document).encode()

    keys._get = get  # pyright: ignore[reportPrivateUsage] # a server on loopback has no certificate
    with pytest.raises(ValueError, match="without TLS"):
        await keys.read()
    await keys.aclose()
