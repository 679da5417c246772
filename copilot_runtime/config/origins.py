"""Origins of pages and names of hosts, as browsers send them."""

import re
from typing import Annotated

from pydantic import AfterValidator

from copilot_runtime.config.section import Words

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?/?"
)
_HOST = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_USUAL_PORTS = {("http", "80"), ("https", "443")}


def _normalize_origin(text: str) -> str:
    """Return an origin as browsers send it. Raises `ValueError` for what none ever sends."""
    if text in ("*", "auto"):
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"{text!r} is not an origin: write scheme://host or scheme://host:port, without a path "
            "or a pattern, as in https://app.example.com, http://localhost:3000; "
            "or * for every origin; or auto"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    is_usual = port is None or (scheme, port) in _USUAL_PORTS
    return f"{scheme}://{host}" if is_usual else f"{scheme}://{host}:{port}"


def _normalize_host(text: str) -> str:
    """Return a host as a `Host` header has it, without a port. Raises `ValueError`."""
    if _HOST.fullmatch(text.lower()) is None:
        raise ValueError(
            f"{text!r} is not a host: write a name without scheme, port and path, as in "
            "app.example.com, *.example.com; or * for every host"
        )
    return text.lower()


def _normalize_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_host, texts))


def _normalize_origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_origin, texts))


Origins = Annotated[Words, AfterValidator(_normalize_origins)]
Hosts = Annotated[Words, AfterValidator(_normalize_hosts)]
