"""The settings section `webhooks`."""

import binascii
from base64 import b64decode
from typing import Annotated

from pydantic import AfterValidator, Field

from copilot_runtime.config.checks import check_secret
from copilot_runtime.config.section import Section
from copilot_runtime.config.sections import Hosts

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


class WebhookSettings(Section):
    """Background runs that post their answer to a URL of the client."""

    secret: Annotated[str, AfterValidator(_check_secret)] = Field(
        default="",
        description="Secret that signs webhooks: whsec_ and base64. Empty: no background runs.",
        repr=False,
    )
    hosts: Hosts = Field(
        default=(),
        description="The only hosts that webhooks may name, also private ones and http://; * for "
        "any. Empty: hosts with public addresses, over https://.",
    )
