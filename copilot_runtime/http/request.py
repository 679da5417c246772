"""Encode the head of an HTTP/1.1 request, so that no part of it can become another part."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[a-z0-9._~!$&'()*+,;=:@%/-]*)?"
    r"(?P<query>\?[a-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.IGNORECASE | re.ASCII,
)
"""An address of which each character means itself."""

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_BREAK = re.compile(r"[\r\n\0]")
_FRAMING = {"content-length", "transfer-encoding"}
_BODILESS = {"GET", "HEAD", "DELETE", "OPTIONS", "TRACE"}
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Where to connect."""

    is_tls: bool
    host: str
    port: int


class Target(NamedTuple):
    """An address, in the parts that a request has."""

    origin: Origin
    authority: str
    path: str


@lru_cache(maxsize=256)
def parse_target(url: str) -> Target | None:
    """Return the parts of an address; None if it needs quoting, decoding or a login."""
    match = _URL.fullmatch(url)
    if match is None:
        return None
    scheme, host = match["scheme"].lower(), match["host"].lower()
    default = _DEFAULT_PORTS[scheme]
    port = int(match["port"] or default)
    if not 0 < port < 65536:
        return None
    authority = host if port == default else f"{host}:{port}"
    origin = Origin(scheme == "https", host.strip("[]"), port)
    return Target(origin, authority, (match["path"] or "/") + (match["query"] or ""))


def encode_head(method: str, target: Target, headers: Mapping[str, str], size: int | None) -> bytes:
    """Return the request line and the headers, for a body of `size` bytes; None: without one.

    `headers` take the place of the usual ones, but for those that say where the body ends. Raises
    `ValueError` for a name or a value that would break out of its line.
    """
    fields = {
        "host": target.authority,
        "accept": "*/*",
        "accept-encoding": "identity",  # a compressing proxy would hold chunks back
        "user-agent": "copilot-runtime",
    }
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _BREAK.search(value):
            raise ValueError(f"The header {name!r} has a character that headers cannot have")
        fields[name.lower()] = value
    for name in _FRAMING:
        fields.pop(name, None)
    if size is not None or method not in _BODILESS:
        fields["content-length"] = str(size or 0)
    lines = [f"{method} {target.path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()
