"""Which resources of a server a frame may read."""

import re
from collections.abc import Sequence

_LONGEST = 2_000
_PLAIN = re.compile(r"[!-\[\]-~]+")
"""Printable characters without spaces and backslashes, which programs read in different ways."""

_DOTS = re.compile(r"(?:^|[/?#])(?:\.|%2e){1,2}(?:[/?#;]|$)", re.IGNORECASE)
_ENCODED_SLASH = re.compile(r"%(?:2f|5c|25|[01][0-9a-f]|7f)", re.IGNORECASE)
"""What becomes a slash, a percent sign or a control character when it is decoded."""


def is_allowed(uri: str, prefixes: Sequence[str]) -> bool:
    """Return whether a URI begins with one of `prefixes`, however a server may read it.

    A prefix ends where a part of the URI ends: `https://a.example` is no beginning of
    `https://a.example.org`. A URI with steps upwards, or with encoded slashes, begins with nothing.
    """
    if len(uri) > _LONGEST or not _PLAIN.fullmatch(uri):
        return False
    if _DOTS.search(uri) or _ENCODED_SLASH.search(uri):
        return False
    return any(_begins_with(uri, prefix) for prefix in prefixes)


def _begins_with(uri: str, prefix: str) -> bool:
    rest = uri.removeprefix(prefix)
    if not uri.startswith(prefix):
        return False
    return not rest or prefix[-1:] in ("/", ":", "") or rest[0] in "/?#"
