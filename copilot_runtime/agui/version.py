"""The AG-UI protocol version of the peer, declared only in a request and in RUN_STARTED.

Rules: https://docs.ag-ui.com/spec/1.1/basic/versioning.
"""

import logging
import re
from functools import lru_cache

PROTOCOL_VERSION = "1.0"
"""The version that this package implements and declares."""

_CURRENT = (1, 0)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_LONGEST = 32
"""Characters of a version that are looked at; no version has as many."""

_LINES = 32
_reported: set[str] = set()
"""What has a line in the log; one for each kind, and not for whatever somebody makes up."""

logger = logging.getLogger(__name__)


def is_legacy(declared: str | None) -> bool:
    """Return whether the other side is of before 1.0: it declares that, or no version at all.

    A newer version, and one that cannot be read, are served as 1.0.
    """
    return declared is None or _is_before_current(declared[:_LONGEST])


def report_unknown(what: str) -> None:
    """Write a line to the log about what the other side knows and this package does not."""
    if what not in _reported and len(_reported) < _LINES:
        _reported.add(what)
        logger.warning(what)


@lru_cache(maxsize=32)
def _is_before_current(declared: str) -> bool:
    match = _VERSION.fullmatch(declared)
    version = (int(match[1]), int(match[2])) if match else None
    if version is None or version > _CURRENT:
        report_unknown(
            f"A client declares AG-UI {declared!r}; it is served with {PROTOCOL_VERSION}"
        )
        return False
    return version < _CURRENT
