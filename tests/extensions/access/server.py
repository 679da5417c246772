"""A runtime with every way to sign in, behind a socket, and credentials for it."""

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from tests.extensions.access.credentials import (
    AUDIENCE,
    ISSUER,
    SECRET,
    issue_key,
    make_key,
    write_jwks,
)
from tests.wire_agui.http import Browser
from tests.wire_agui.server import PATH, Parrot, serving

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
