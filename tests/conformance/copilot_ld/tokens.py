"""Tokens of services in the form of Copilot-LD, and those of its pages."""

import re
import warnings
from base64 import b64decode, b64encode
from typing import Any

import jwt

from copilot_runtime.api.scheme import CredentialInvalid
from copilot_runtime.extensions.access.authentication.jwt import JwtScheme
from copilot_runtime.extensions.access.service_tokens import (
    ServiceTokenInvalid,
    ServiceTokenSigner,
    ServiceTokenVerifier,
)
from copilot_runtime.extensions.access.settings import JwtSettings
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


async def answer_web(case: Case) -> Any:
    """A token of a page becomes its user, or why it is refused."""
    claims = {name: read_time(value) for name, value in find_payload(case.input).items()}
    settings = JwtSettings.model_construct(
        secret=case.input["server_secret"],
        algorithms=("HS256",),
        audience=("authenticated",),
        leeway=0.0,
    )
    with warnings.catch_warnings():  # the secrets of the cases are short
        warnings.simplefilter("ignore", jwt.InsecureKeyLengthWarning)
        token = jwt.encode(claims, case.input["secret"], "HS256")
        if algorithm := case.input.get("alg"):
            header = b64encode(f'{{"alg":"{algorithm}"}}'.encode()).decode().rstrip("=")
            token = f"{header}.{token.partition('.')[2]}"
        scheme = JwtScheme(settings, clock=lambda: NOW)
        try:
            identity = scheme.identify(await scheme.verify(token))
        except CredentialInvalid as error:
            return [401, {"error": error.message}]
    user = {"id": identity.user, "email": claims.get("email"), "role": claims.get("role")}
    return ["user", {name: value for name, value in user.items() if value is not None}]


def find_payload(given: dict[str, Any]) -> dict[str, Any]:
    return given.get("payload_relative_to_now") or given.get("payload") or {}


def read_time(value: Any) -> Any:
    """Return a moment that a case names by its distance from now, as in `now+60`."""
    found = re.fullmatch(r"now([+-]\d+)", value) if isinstance(value, str) else None
    return NOW + int(found[1]) if found else value
