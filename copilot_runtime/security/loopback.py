"""Restrict a server on loopback to programs and pages of this machine.

Any web page can send requests to 127.0.0.1. Such a request has the page's origin, or, if the name
of its site was rebound to 127.0.0.1 (DNS rebinding), the site's host: both are in the headers.
"""

import logging
import re
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)


class Listener(NamedTuple):
    """The address at which a server listens, and the host name or address that was configured.

    `port` is 0 if it is unknown.
    """

    address: str
    host: str
    port: int = 0


LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
"""Set by a server, when it starts an application, to the address at which it listens."""

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\s:/?#@\[\]\\]+)(:\d*)?", re.ASCII)
_MOST_LOGGED = 100
"""Maximum number of logged hosts and origins: a client may invent any number."""


class Violation(NamedTuple):
    """The reason why a request is rejected."""

    status: int
    message: str


class LoopbackGuard:
    """Rejects requests from elsewhere if a server is only meant for this machine.

    `hosts` are accepted besides those of this machine, and so are pages from them:
    `app.example.com`, `*.example.com`, or `*` for all hosts. `origins` are those of allowed pages,
    `*` for all; their hosts are accepted as well. `proxies` are the addresses of proxies in front
    of the server.
    """

    def __init__(
        self,
        hosts: Collection[str] = (),
        origins: Collection[str] = (),
        proxies: Collection[str] = (),
    ) -> None:
        self.has_login = False
        """Whether the application authenticates requests."""
        self._listener: Listener | None = None
        self._is_exposed = False
        self._proxy_settings = list_proxy_settings(hosts, proxies)
        self._names = frozenset(("localhost", *hosts))
        self._suffixes = (".localhost", *(host[1:] for host in hosts if host.startswith("*.")))
        self._origins = frozenset(origins)
        self._origin_hosts = frozenset(_name_of(it.partition("://")[2]) for it in origins)
        self._answers_all = "*" in hosts or "*" in origins
        self._logged: set[str] = set()

    def listen(self, listener: Listener) -> None:
        """Set where the server listens, and warn if it is exposed without authentication.

        Without this call, the address is taken from the ASGI scope of each request.
        """
        self._listener = listener
        self._names |= {listener.host.lower()}
        if not is_loopback(listener.address):
            self._expose(f"at {listener.address}")

    def warn_of_proxies(self) -> None:
        """Warn if the server is exposed by a proxy without authentication."""
        if self._proxy_settings and not self._is_exposed:
            self._expose(f"by a proxy, for which {' and '.join(self._proxy_settings)} are set")

    def applies(self, scope: MutableMapping[str, Any]) -> bool:
        """Return whether a request arrived at a loopback address, so that the rules apply."""
        if self._listener is not None:
            return is_loopback(self._listener.address)
        server = scope.get("server")
        if server is None:
            return False
        if not self._is_exposed and is_elsewhere(server[0]):
            self._expose(f"at {server[0]}")
        return is_loopback(server[0])

    def check_host(self, headers: Mapping[str, str]) -> Violation | None:
        """Return the reason why the `Host` of a request is rejected, or `None`."""
        host = headers.get("host")
        if not host or self._answers_all:
            return None
        name = _name_of(host)
        if self._is_ours(name) or (name and name in self._origin_hosts):
            return None
        return self._refuse(421, f"does not answer for the host {host[:100]!r}", "allowed_hosts")

    def check_origin(self, headers: Mapping[str, str]) -> Violation | None:
        """Return the reason why the origin of a request is rejected, or `None`."""
        origin = headers.get("origin")
        if origin is None and "*" not in self._origins and _is_embedded(headers):
            return self._refuse(
                403, "does not answer what pages of other sites embed", "cors_origins"
            )
        if origin is None or self.allows_origin(origin, headers.get("host")):
            return None
        problem = f"does not answer pages of the origin {origin[:100]!r}"
        return self._refuse(403, problem, "cors_origins")

    def allows_origin(self, origin: str, host: str | None = None) -> bool:
        """Return whether pages of an origin are allowed: local, configured, or from our host."""
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return place == host or self._is_ours(_name_of(place))

    def is_own_name(self, host: str) -> bool:
        """Return whether a `Host` is this machine's own: localhost, or a loopback address.

        Other accepted hosts may be names of a proxy that can be reached from anywhere.
        """
        return _is_name_of_loopback(_name_of(host))

    def _is_ours(self, name: str) -> bool:
        return name in self._names or name.endswith(self._suffixes) or is_loopback(name.strip("[]"))

    def _expose(self, way: str) -> None:
        self._is_exposed = True
        if not self.has_login:
            logger.warning(
                "No authentication is configured, and other machines can reach this server %s: "
                "anyone there may use the model at your expense and read all threads. Set "
                "access.authenticate, for example to api_keys, give CopilotRuntime an "
                "authenticate function, or listen on 127.0.0.1%s.",
                way,
                " without these settings" if self._proxy_settings else "",
            )

    def _refuse(self, status: int, problem: str, setting: str) -> Violation:
        message = f"This server listens on this machine only, and {problem}."
        if message not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(message)
            logger.warning("%s If it should, name it in the setting %s.", message, setting)
        return Violation(status, f"{message} The setting {setting} names others.")


def _is_embedded(headers: Mapping[str, str]) -> bool:
    """Return whether another site embeds this, for example as an image, without an `Origin`."""
    site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
    return site == "cross-site" and mode == "no-cors"


def list_proxy_settings(hosts: Collection[str], proxies: Collection[str]) -> Sequence[str]:
    """Return the settings which imply that other machines reach the server through a proxy."""
    exposes = {
        "allowed_hosts": any(not _is_name_of_loopback(host) for host in hosts),
        "proxy.addresses": bool(proxies),
    }
    return [name for name, is_set in exposes.items() if is_set]


def _is_name_of_loopback(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name.strip("[]"))


@lru_cache(maxsize=64)
def is_loopback(address: str) -> bool:
    """Return whether a text is a loopback IP address; `False` for a host name or a path."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Return whether a request was forwarded by a proxy, so its client may be anywhere."""
    return any(name in headers for name in _PROXY_HEADERS)


def is_from_other_page(headers: Mapping[str, str]) -> bool:
    """Return whether a browser request was caused by a page of another origin, also by a link."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@lru_cache(maxsize=64)
def is_elsewhere(address: str) -> bool:
    """Return whether a text is an IP address that other machines can reach."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return not is_loopback(address)


@lru_cache(maxsize=256)
def _name_of(host: str) -> str:
    """Return the host name in a `Host` header, without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host.lower())
    return found["name"].removesuffix(".") if found else ""
