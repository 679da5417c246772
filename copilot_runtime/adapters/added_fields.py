"""The fields that a service adds to thoughts, texts and calls, and wants back unchanged.

Signatures, encrypted reasoning, `reasoning_content`, `extra_content`, ids of its own form: they are
observed in its responses, not configured. A `ReasoningSignature` carries them to the client and
into the thread, as `origin:{JSON}`. Only the service of that origin gets them back: another one
refuses what it did not write.
"""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast
from urllib.parse import urlsplit

from copilot_runtime.api.messages import ActionExecutionMessage, ReasoningMessage, TextMessage
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject

logger = logging.getLogger(__name__)

ID = "$id"
"""The id of a call as the service sent it, if ours differs."""
ANSWER = "$answer"
"""The fields of the whole answer, on its first call or text."""
AFTER = "$after"
"""The id of the text or call after which a thought of the same answer came.

Clients put the calls of an answer beside its text, before such a thought.
"""
_TOO_LARGE = 1_000_000
"""Characters of JSON beyond which the fields of a thought, text or call are left out."""

_FAMILY = re.compile(r"[a-z]*")


@lru_cache(maxsize=256)  # a client may name a model in each request
def name_origin(api: str, url: str, model: str) -> str:
    """Return the origin of fields: the API, a digest of the URL's host, and the model's family.

    The host is not readable, because pages get the origin. Behind one host may be the models of
    many makers, which refuse the fields of one another; those of one family accept them.
    """
    host = sha256(urlsplit(url).netloc.rpartition("@")[2].lower().encode()).hexdigest()[:8]
    family = _FAMILY.match(model.rpartition("/")[2].lower())
    return f"{api}@{host}/{family[0] if family else ''}"


def encode_fields(origin: str, fields: Mapping[str, Any]) -> str:
    """Return the value of a `ReasoningSignature`; an empty string for fields that are too large."""
    value = dumps(fields).decode()
    if len(value) <= _TOO_LARGE:
        return f"{origin}:{value}"
    logger.warning(
        "Left out the fields %s of an answer from %s: %d characters, and %d are sent back at most",
        ", ".join(map(repr, fields)),
        origin,
        len(value),
        _TOO_LARGE,
    )
    return ""


def read_fields(
    message: ReasoningMessage | TextMessage | ActionExecutionMessage, origin: str
) -> JsonObject | None:
    """Return the fields that the service of that origin has added, or `None` for another one."""
    if isinstance(message, ReasoningMessage):
        value = message.signature
    else:
        value = message.extra.get("encryptedValue") if message.extra else None
    if not origin or not isinstance(value, str) or not value.startswith(f"{origin}:"):
        return None
    try:
        fields = loads(value[len(origin) + 1 :].encode(errors="replace"))
    except ValueError:  # altered by a client
        return None
    return cast("JsonObject", fields) if isinstance(fields, dict) else None


def select_own_fields(fields: Mapping[str, Any]) -> JsonObject:
    """Return the service's own fields, without ours, which begin with `$`."""
    return {name: value for name, value in fields.items() if not name.startswith("$")}


_WHOLE = frozenset({"format", "id", "index", "name", "role", "type"})
"""Members that are repeated with each piece. Other texts come in pieces, which are joined."""
_REPEATED = 32
"""Length from which a first piece that comes twice is a repetition, such as of a signature."""


class FieldPieces:
    """Joins fields that arrive in pieces, as in the deltas of a stream.

    Texts are joined, objects merged, and the items of lists merged with the open item of the same
    `index` and `type`. Any other value replaces the one before it; null replaces nothing.
    """

    def __init__(self) -> None:
        self._fields: JsonObject = {}

    def __bool__(self) -> bool:
        return bool(self._fields)

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a piece."""
        _merge(self._fields, fields)

    def join(self) -> JsonObject:
        """Return the fields so far, each whole."""
        return {name: _join(value) for name, value in self._fields.items()}


class _Text(list[str]):
    """A text in pieces: joining them one by one would copy a long thought with each chunk."""


def _merge(target: JsonObject, new: Mapping[str, Any]) -> None:
    for name, value in new.items():
        before = target.get(name)
        if value is None:
            target.setdefault(name, None)
        elif isinstance(value, str) and isinstance(before, _Text) and name not in _WHOLE:
            if value and (before != [value] or len(value) < _REPEATED):
                before.append(value)
        elif isinstance(value, str):
            target[name] = value if name in _WHOLE else _Text([value] if value else [])
        elif isinstance(value, Mapping) and isinstance(before, dict | None):
            inner = target[name] = cast("JsonObject", before or {})
            _merge(inner, cast("Mapping[str, Any]", value))
        elif isinstance(value, list) and (before is None or type(before) is list):
            target[name] = items = cast("list[Any]", [] if before is None else before)
            _merge_items(items, cast("list[Any]", value))
        else:
            target[name] = value


def _merge_items(items: list[Any], new: list[Any]) -> None:
    count = len(items)  # the items of one piece are not pieces of one another
    for piece in new:
        if not isinstance(piece, Mapping):
            items.append(piece)
            continue
        fields = cast("JsonObject", piece)
        first = 0 if fields.get("index") is not None else max(count - 1, 0)
        for target in reversed(items[first:count]):
            if isinstance(target, dict) and _continues(cast("JsonObject", target), fields):
                _merge(cast("JsonObject", target), fields)
                break
        else:
            items.append(item := JsonObject())
            _merge(item, fields)


def _continues(target: JsonObject, piece: JsonObject) -> bool:
    """Return whether a piece belongs to an item.

    OpenRouter numbers its `reasoning_details`. LiteLLM does not number its `thinking_blocks`: a
    signature or encrypted data end a block there.
    https://openrouter.ai/docs/guides/best-practices/reasoning-tokens
    https://docs.litellm.ai/docs/reasoning_content
    """
    for name in ("index", "type", "id"):
        one, other = target.get(name), piece.get(name)
        if one != other and (name == "index" or not (one is None or other is None)):
            return False
    return target.get("index") is not None or not (target.get("signature") or target.get("data"))


def _join(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value)
    if isinstance(value, dict):
        return {name: _join(each) for name, each in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [_join(each) for each in cast("list[Any]", value)]
    return value
