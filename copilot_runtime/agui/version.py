"""Which version of AG-UI the other side speaks. Only a request and RUN_STARTED say so.

Rules: https://docs.ag-ui.com/spec/1.1/basic/versioning.
"""

import logging
import re
from functools import lru_cache

PROTOCOL_VERSION = "1.0"
"""What this package speaks, and declares on both sides."""

_CURRENT = (1, 0)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)

logger = logging.getLogger(__name__)


@lru_cache(maxsize=32)  # so that each version has one line in the log
def is_legacy(declared: str | None) -> bool:
    """Return whether the other side is of before 1.0: it declares that, or no version at all.

    A newer version, and one that cannot be read, are served as 1.0.
    """
    if declared is None:
        return True
    match = _VERSION.fullmatch(declared)
    version = (int(match[1]), int(match[2])) if match else None
    if version is None or version > _CURRENT:
        logger.warning(
            "A client declares AG-UI %.20r; it is served with %s", declared, PROTOCOL_VERSION
        )
        return False
    return version < _CURRENT
