"""Tokens of services, in the form of Copilot-LD."""

import re
from base64 import b64decode, b64encode
from typing import Any

from copilot_runtime.security.service_tokens import (
    ServiceTokenInvalid,
    ServiceTokenSigner,
    ServiceTokenVerifier,
)
from tests.conformance.copilot_ld.cases import Case

SECRET = "0123456789abcdef0123456789abcdef"
NOW = 1_700_000_000.0


def answer(case: Case) -> Any:
    """A service becomes a token, and a token the service whose it is."""
    if isinstance(case.input, dict) and "service" in case.input:
        return sign(case.input)
    if isinstance(case.input, dict):
        moment = NOW + case.input.get("dt_ms", 0) / 1000
        return verify(make_token(case.input.get("secret", SECRET)), moment)
    if any(word in case.feature for word in ("secret", "signature", "tamper")):
        return verify(make_token(SECRET[::-1]), NOW)
    return verify(encode(str(case.input)), NOW)


def sign(given: dict[str, Any]) -> dict[str, str]:
    clock = given["now_ms"] / 1000
    signer = ServiceTokenSigner(
        given["service"], [given["secret"]], form="simple", clock=lambda: clock
    )
    token = signer.sign()
    return {"token": token, "decoded": b64decode(token).decode()}


def make_token(secret: str) -> str:
    return ServiceTokenSigner("agent", [secret], form="simple", clock=lambda: NOW).sign()


def encode(text: str) -> str:
    """Return the token that a case describes: `b64(a:b)`, or what is in it."""
    inner = re.fullmatch(r"b64\((.*)\)", text)
    return b64encode((inner[1] if inner else text).encode()).decode()


def verify(token: str, moment: float) -> dict[str, Any]:
    verifier = ServiceTokenVerifier([SECRET], form="simple", clock=lambda: moment)
    try:
        service = verifier.read(token).service
    except ServiceTokenInvalid as error:
        return {"isValid": False, "serviceId": None, "error": error.message}
    return {"isValid": True, "serviceId": service, "error": None}
