"""The token by which services of Copilot-LD know each other."""

import hashlib
import hmac
from base64 import b64encode
from time import time

from copilot_runtime.errors import ConfigurationFailed

_SHORTEST_SECRET = 32


def create_token(service: str, secret: str, now_ms: int | None = None) -> str:
    """Return `service:epoch_ms:signature` in base64. The services take it for 60 seconds.

    Raises `ConfigurationFailed` for a secret of less than 32 characters, which they refuse.
    """
    if len(secret) < _SHORTEST_SECRET:
        raise ConfigurationFailed(
            f"The secret of services has {len(secret)} characters: at least {_SHORTEST_SECRET} are "
            "needed.",
            hint="Set SERVICE_SECRET to that of the services.",
        )
    payload = f"{service}:{int(time() * 1000) if now_ms is None else now_ms}"
    signature = hmac.new(secret.encode(), payload.encode(), hashlib.sha256).hexdigest()
    return b64encode(f"{payload}:{signature}".encode()).decode()
