"""Send signed requests to public addresses, or to the hosts that the settings name."""

import asyncio
import hmac
import socket
import time
from base64 import b64encode
from collections.abc import Sequence

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from copilot_runtime.base.errors import Misuse, NetworkError
from copilot_runtime.extensions.webhooks.settings import WebhookSettings, decode_secret, split_port
from copilot_runtime.security.addresses import resolve_public_addresses

_TIMEOUT = 10.0
"""Seconds for an attempt, in which a receiver only has to store the message."""

_URL_LENGTH = 2000


class Unreachable(NetworkError):
    """No connection came about, so that no other path of the origin can be reached either."""


class WebhookSender:
    """Posts messages with the headers of Standard Webhooks.

    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self._key = decode_secret(settings.secret)
        self._hosts = [*map(split_port, settings.hosts)]

    def check_url(self, text: str) -> None:
        """Raise `Misuse` for a URL that no webhook may have."""
        try:
            url = URL(text)
        except ValueError:
            url = URL()
        is_text = text.isprintable() and len(text) <= _URL_LENGTH  # a URL drops line breaks
        if url.scheme not in ("http", "https") or not url.host or not is_text:
            raise Misuse("webhook is a URL such as https://example.com/answers.")
        if url.user or url.password:
            raise Misuse("The URL of a webhook has no user and password: its body is signed.")
        if self._hosts and not self._is_named(url):
            raise Misuse(
                f"Webhooks may not be sent to '{url.host[:100]}:{url.port}'.",
                hint="The setting webhooks.hosts has the hosts that are allowed.",
            )
        if url.scheme == "http" and not self._hosts:
            raise Misuse(
                "The URL of a webhook begins with https://.",
                hint="Hosts in the setting webhooks.hosts may have http://, and private addresses.",
            )

    async def send(self, text: str, id: str, body: bytes) -> int:
        """Post a message and return the status; redirects are not followed.

        The host is resolved once, and only its public addresses are connected to, unless the
        settings name it. Raises `Unreachable`, `NetworkError` if the connection is of no use, and
        `ConfigurationFailed` for a private address.
        """
        url = URL(text)
        resolver = None if self._is_named(url) else await _resolve(url)
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                ClientSession(
                    connector=TCPConnector(resolver=resolver),
                    cookie_jar=DummyCookieJar(),
                    timeout=ClientTimeout(connect=_TIMEOUT / 2),
                ) as session,
                session.post(
                    url, data=body, headers=self._sign(id, body), allow_redirects=False
                ) as response,
            ):
                return response.status
        except ConnectionTimeoutError as error:
            raise Unreachable(f"no connection in {_TIMEOUT / 2:g} seconds") from error
        except ClientConnectorError as error:
            raise Unreachable(str(error)) from error
        except TimeoutError as error:
            raise NetworkError(f"no response in {_TIMEOUT:g} seconds") from error
        except (ClientError, OSError) as error:
            raise NetworkError(str(error) or type(error).__name__) from error

    def _sign(self, id: str, body: bytes) -> dict[str, str]:
        now = int(time.time())
        return {
            "content-type": "application/json",
            "user-agent": "copilot-runtime",
            "webhook-id": id,
            "webhook-timestamp": str(now),
            "webhook-signature": sign(self._key, id, now, body),
        }

    def _is_named(self, url: URL) -> bool:
        host = (url.host or "").lower().removesuffix(".")
        names = (host, f"[{host}]", "*")
        return any(
            port in (None, url.port)
            and (name in names or (name.startswith("*.") and host.endswith(name[1:])))
            for name, port in self._hosts
        )


def sign(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message: HMAC-SHA256 in base64 after `v1,`."""
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, "sha256")
    return f"v1,{b64encode(digest).decode()}"


async def _resolve(url: URL) -> "_FixedResolver":
    """Return the public addresses of a host. Raises `Unreachable` and `ConfigurationFailed`."""
    try:
        async with asyncio.timeout(_TIMEOUT):  # a name may take longer than the lease to resolve
            found = await resolve_public_addresses(url.raw_host or "", url.port or 443)
    except TimeoutError as error:
        raise Unreachable(f"no address in {_TIMEOUT:g} seconds") from error
    except NetworkError as error:
        raise Unreachable(error.message) from error
    return _FixedResolver(found)


class _FixedResolver(AbstractResolver):
    """Returns the addresses that were checked, so that no name is resolved a second time."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family  # the connector tries all of them
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: it holds no connection."""
