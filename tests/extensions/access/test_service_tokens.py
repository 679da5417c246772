"""Tokens of services: for one method and one body, once, for a minute."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.service_tokens import (
    MemoryReplays,
    ServiceTokenInvalid,
    ServiceTokenSigner,
    ServiceTokenVerifier,
    TokenForm,
)
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

OLD, NEW = "0" * 32, "1" * 32
METHOD = "/llm.Llm/CreateEmbeddings"


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def signed(clock: Clock, *secrets: str, form: TokenForm = "bound") -> str:
    signer = ServiceTokenSigner("agent", secrets or [OLD], form=form, clock=clock)
    return signer.sign(METHOD, b"body")


async def test_a_token_is_good_for_its_method_and_body(clock: Clock) -> None:
    verifier = ServiceTokenVerifier([OLD], clock=clock)

    assert await verifier.verify(signed(clock), METHOD, b"body") == "agent"


@in_one_test(
    ("method", "body", "why"),
    [
        ("/llm.Llm/CreateCompletions", b"body", "signature"),
        ("", b"body", "signature"),
        (METHOD, b"another body", "another body"),
        (METHOD, b"", "another body"),
    ],
)
async def test_a_token_is_for_nothing_else(
    clock: Clock, method: str, body: bytes, why: str
) -> None:
    with pytest.raises(ServiceTokenInvalid, match=why):
        await ServiceTokenVerifier([OLD], clock=clock).verify(signed(clock), method, body)


async def test_a_token_is_good_once(clock: Clock) -> None:
    verifier, token = ServiceTokenVerifier([OLD], clock=clock), signed(clock)
    await verifier.verify(token, METHOD, b"body")

    with pytest.raises(ServiceTokenInvalid, match="used before"):
        await verifier.verify(token, METHOD, b"body")


async def test_a_token_with_a_wrong_body_is_not_used_up(clock: Clock) -> None:
    verifier, token = ServiceTokenVerifier([OLD], clock=clock), signed(clock)
    with pytest.raises(ServiceTokenInvalid):
        await verifier.verify(token, METHOD, b"another body")

    assert await verifier.verify(token, METHOD, b"body") == "agent"


@in_one_test(
    ("seconds", "why"), [(60.0, ""), (60.001, "expired"), (-5.0, ""), (-5.001, "from the future")]
)
async def test_a_token_is_good_for_a_minute(clock: Clock, seconds: float, why: str) -> None:
    token = signed(clock)
    clock.now += seconds
    verifier = ServiceTokenVerifier([OLD], clock=clock)

    if not why:
        assert verifier.read(token, METHOD).service == "agent"
        return
    with pytest.raises(ServiceTokenInvalid, match=why):
        verifier.read(token, METHOD)


async def test_secrets_are_rotated_by_a_list(clock: Clock) -> None:
    both = ServiceTokenVerifier([NEW, OLD], clock=clock)

    for secrets in ([OLD], [NEW], [NEW, OLD]):
        assert await both.verify(signed(clock, *secrets), METHOD, b"body") == "agent"
    with pytest.raises(ServiceTokenInvalid, match="signature"):
        ServiceTokenVerifier([NEW], clock=clock).read(signed(clock, OLD), METHOD)


async def test_a_token_of_one_form_is_none_of_the_other(clock: Clock) -> None:
    bound = ServiceTokenVerifier([OLD], clock=clock)
    simple = ServiceTokenVerifier([OLD], form="simple", clock=clock)

    with pytest.raises(ServiceTokenInvalid, match="format"):
        bound.read(signed(clock, form="simple"), METHOD)
    with pytest.raises(ServiceTokenInvalid, match="format"):
        simple.read(signed(clock), METHOD)
    assert await simple.verify(signed(clock, form="simple"), "any", b"thing") == "agent"
    assert await simple.verify(signed(clock, form="simple"), "any", b"thing") == "agent"


def _change(part: int, to: str) -> Callable[[str], str]:
    def change(token: str) -> str:
        parts = b64decode(token).decode().split(":")
        parts[part] = to
        return b64encode(":".join(parts).encode()).decode()

    return change


CHANGES: list[Callable[[str], str]] = [
    _change(0, "other"),
    _change(1, "1700000000001"),
    _change(1, "\u0661\u0667"),
    _change(1, "9" * 400),
    _change(1, "-1"),
    _change(2, "0" * 32),
    _change(3, "0" * 64),
    _change(4, ""),
    _change(4, "0" * 64),
    _change(4, "ä" * 64),
    lambda token: "",
    lambda token: token[:-4],
    lambda token: token + "====",
    lambda token: "A" * 5_000_000,
    lambda token: b64encode(b":" * 1_000).decode(),
    lambda token: "\ud83d",
    lambda token: "{}",
]


@in_one_test("change", CHANGES)
def test_what_was_changed_or_made_up_is_refused(clock: Clock, change: Callable[[str], str]) -> None:
    with pytest.raises(ServiceTokenInvalid):
        ServiceTokenVerifier([OLD], clock=clock).read(change(signed(clock)), METHOD)


@in_one_test("name", ["", " "])
def test_a_service_without_a_name_is_refused(clock: Clock, name: str) -> None:
    text = f"{name}:{round(clock.now * 1000)}"
    signature = hmac.digest(OLD.encode(), text.encode(), "sha256").hex()
    token = b64encode(f"{text}:{signature}".encode()).decode()

    with pytest.raises(ServiceTokenInvalid, match="format"):
        ServiceTokenVerifier([OLD], form="simple", clock=clock).read(token)


async def test_nonces_are_forgotten_in_time_and_never_before(clock: Clock) -> None:
    replays = MemoryReplays(most=2, clock=clock)

    assert await replays.add("a", clock.now, clock.now + 10)
    assert await replays.add("b", clock.now, clock.now + 20)
    assert not await replays.add("a", clock.now, clock.now + 10)
    with pytest.raises(ServiceTokenInvalid, match="Too many"):
        await replays.add("c", clock.now, clock.now + 10)
    clock.now += 11
    assert await replays.add("c", clock.now, clock.now + 10)
    assert not await replays.add("b", clock.now, clock.now + 9)


async def test_a_token_of_before_a_process_that_remembers_in_memory_is_refused(
    clock: Clock,
) -> None:
    old = signed(clock)
    clock.now += 0.001
    verifier = ServiceTokenVerifier([OLD], clock=clock)  # which another process may have used

    with pytest.raises(ServiceTokenInvalid, match="Sign a new one"):
        await verifier.verify(old, METHOD, b"body")
    assert await verifier.verify(signed(clock), METHOD, b"body") == "agent"


@in_one_test("secrets", [[], ["short"], [OLD, "short"]])
def test_a_secret_that_could_be_guessed_is_refused(secrets: list[str]) -> None:
    with pytest.raises(ConfigurationFailed, match="secret"):
        ServiceTokenVerifier(secrets)


@in_one_test("name", ["", "a:b", "a b", "é", "x" * 101])
def test_a_service_whose_tokens_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationFailed, match="name of a service"):
        ServiceTokenSigner(name, [OLD])
