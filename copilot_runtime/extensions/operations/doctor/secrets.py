"""Keep secrets out of what is shown, whatever an error of somebody else's says."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from pydantic import BaseModel

from copilot_runtime.config.problems import SECRET_NAMES
from copilot_runtime.config.settings import Settings

_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
_SHORTEST = 6
_MASK = "•••"


def collect_secrets(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    """Return all texts that no output may have: passwords in addresses, keys and tokens."""
    found = {text for name, text in environ.items() if SECRET_NAMES.fullmatch(name)}
    found |= {*_walk(settings, is_secret=False)}
    for text in [*environ.values(), *_walk(settings, is_secret=True)]:
        for address in _URL.findall(text):
            found |= {*_split_password(address)}
    return frozenset(text for text in found if len(text) >= _SHORTEST)


def hide_secrets(text: str, secrets: frozenset[str]) -> str:
    """Return a text without secrets. The longest go first: one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def _split_password(address: str) -> Iterator[str]:
    """Yield the password of an address, also of one in which it is not percent-encoded."""
    user, at, _ = address.partition("://")[2].rpartition("@")
    password = user.partition(":")[2]
    if at and password:
        yield password
        yield unquote(password)


def _walk(value: Any, *, is_secret: bool) -> Iterator[str]:
    """Yield texts below a value: all of them, or only those under the name of a secret."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[Any, Any]", value).items():
            yield from _walk(inner, is_secret=is_secret or bool(SECRET_NAMES.fullmatch(str(name))))
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _walk(inner, is_secret=is_secret)
    elif isinstance(value, str) and is_secret:
        yield value
