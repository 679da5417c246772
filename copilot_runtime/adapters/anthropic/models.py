"""The capabilities of Claude's models by version: a request beyond them is refused with 400.

https://platform.claude.com/docs/en/about-claude/models/overview and the migration guides there.
`genai-prices` has windows and prices, but none of this. Other models behind the same API
(gateways, local servers) are taken for an older Claude.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Thinking = Literal["never", "budget", "adaptive"]
Off = Literal["absent", "disabled", "between_tools", "impossible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The capabilities of one model.

    `max_tokens` is the maximum length of an answer, reasoning included. `thinking` is the way to
    enable reasoning, `off` the way to disable it (`absent`: by omitting the field). `bound`
    reasoning is refused in any other conversation.
    """

    max_tokens: int
    thinking: Thinking
    off: Off = "absent"
    effort: bool = False
    sampling: bool = False
    """It accepts `temperature` and `top_p`."""
    forced_tools: bool = True
    """It accepts a tool choice of `any` or of one tool."""
    schemas: bool = True
    """It accepts a JSON schema for its answer."""
    bound: bool = False
    eager: bool = False
    """It streams arguments if the tool has the flag for it."""
    versioned: bool = True
    """Its name is that of a Claude with a version, so the documented limits apply."""


_BEFORE = re.compile(r"claude-(\d+)(?:[-.](\d{1,2}))?-([a-z]+)")  # claude-3-5-haiku-20241022
_AFTER = re.compile(r"claude-([a-z]+)-(\d+)(?:[-.](\d{1,2}))?(?![\d.])")  # claude-opus-4-1-20250805
_BARE = re.compile(r"claude-([a-z]+)-(?:preview|latest)")  # claude-mythos-preview

_ALWAYS_THINK = ("fable", "mythos")
_LONG, _MIDDLE, _SHORT = 128_000, 64_000, 32_000


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_traits(model: str) -> Traits:
    """Return the capabilities of a model, from any spelling of its name with a version."""
    family, version = _version_of(model.lower())
    if version is None:
        return Traits(max_tokens=_SHORT, thinking="budget", sampling=True, versioned=False)
    if version < (4, 6):
        return _older(family, version)
    always = family in _ALWAYS_THINK or (family == "opus" and version >= (5, 5))
    bound = version >= (5, 1)
    return Traits(
        max_tokens=_MIDDLE if version == (4, 6) and family == "sonnet" else _LONG,
        thinking="adaptive",
        off="impossible" if always else _off(family, version),
        effort=True,
        sampling=version < (4, 7),
        forced_tools=not (bound and (always or family == "sonnet")),
        bound=bound,
        eager=True,
    )


def _off(family: str, version: tuple[int, int]) -> Off:
    if version < (5, 0):
        return "absent"
    return "between_tools" if family == "sonnet" and version >= (5, 5) else "disabled"


def _older(family: str, version: tuple[int, int]) -> Traits:
    if version < (3, 7):
        most = 8_192 if version == (3, 5) else 4_096
        return Traits(max_tokens=most, thinking="never", sampling=True, schemas=False)
    return Traits(
        max_tokens=_SHORT if family == "opus" and version < (4, 5) else _MIDDLE,
        thinking="budget",
        effort=family == "opus" and version == (4, 5),
        sampling=True,
        eager=version >= (4, 5),
        schemas=version >= (4, 5) or (family == "opus" and version == (4, 1)),
    )


def _version_of(name: str) -> tuple[str, tuple[int, int] | None]:
    if found := _BEFORE.search(name):
        return found[3], (int(found[1]), int(found[2] or 0))
    if found := _AFTER.search(name):
        return found[1], (int(found[2]), int(found[3] or 0))
    if found := _BARE.search(name):
        return found[1], (5, 0)
    return "", None
