"""The settings section `webhooks`."""

import binascii
import re
from base64 import b64decode
from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_secret
from copilot_runtime.config.section import Section, Words
from copilot_runtime.config.sections import normalize_host

_PREFIX = "whsec_"
_KEY_BYTES = 24


def decode_secret(text: str) -> bytes:
    """Return the key in a secret such as `whsec_MfKQ9r8G…`: base64 after the prefix.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    Raises `ValueError`.
    """
    try:
        key = b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or len(key) < _KEY_BYTES:
        raise ValueError(
            f"it must be {_PREFIX} and then {_KEY_BYTES} bytes or more in base64: "
            f'`echo "{_PREFIX}$(openssl rand -base64 32)"` prints one'
        )
    return key


def _check_secret(text: str) -> str:
    if text:
        decode_secret(check_secret(text))
    return text


def split_port(text: str) -> tuple[str, int | None]:
    """Return a host, and its port if there is one: `[::1]:9000`, `*.example.com`."""
    host, _, port = text.rpartition(":") if re.search(r"[^:]:\d+$", text) else (text, "", "")
    return host, int(port) if port else None


def _normalize_receivers(texts: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for text in texts:
        host, port = split_port(text)
        if port is not None and not 0 < port < 65536:
            raise ValueError(f"{text!r} has no port from 1 to 65535, as in example.com:8443")
        found.append(normalize_host(host) + ("" if port is None else f":{port}"))
    return tuple(found)


class WebhookSettings(Section):
    """Background runs that post their answer to a URL of the client."""

    secret: Annotated[str, AfterValidator(_check_secret)] = Field(
        default="",
        description="Secret that signs webhooks: whsec_ and base64. Empty: no background runs.",
        repr=False,
    )
    hosts: Annotated[Words, AfterValidator(_normalize_receivers)] = Field(
        default=(),
        description="The only hosts that webhooks may name, also private ones and http://; * for "
        "any, host:port for one port. Empty: hosts with public addresses, over https://.",
    )
