"""A line of the audit log, and the hash chain of lines."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.jsontext import dumps, dumps_line, loads

Outcome = Literal["allowed", "refused", "failed", "finished", "stopped"]
"""The outcome of a request, or of a run that has ended."""

_LONGEST = 2_000
"""Maximum bytes of a text, as ids and addresses come from clients."""
_LONGEST_QUESTION = 8_000
_LONGEST_ESCAPE = 6
"""Bytes of an escape sequence in JSON, such as that of a control character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One audited operation. `text` is set only if the operator allows content."""

    action: str
    outcome: Outcome
    reason: str = ""
    user: str | None = None
    actor: str = ""
    method: str = ""
    key: str = ""
    address: str = ""
    thread: str = ""
    run: str = ""
    agent: str = ""
    status: int | None = None
    text: str = ""
    time: float = 0.0

    def clip(self) -> "AuditRecord":
        """Return the record with long texts shortened, which also bounds the memory of the queue.

        A lone surrogate, which JSON may contain, becomes a question mark, as it has no UTF-8 bytes.
        """
        return replace(
            self,
            **{
                name: _clip(value, _LONGEST_QUESTION if name == "text" else _LONGEST)
                for name in self.__dataclass_fields__
                if isinstance(value := getattr(self, name), str)
                and (len(value) > _LONGEST // _LONGEST_ESCAPE or not value.isascii())
            },
        )

    def encode(self) -> dict[str, Any]:
        """Return the record as JSON, without empty fields."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["time"] = format_time(self.time)
        order = ("time", *(name for name in fields if name != "time"))
        return {name: fields[name] for name in order if fields[name] not in ("", None)}


def format_time(seconds: float) -> str:
    """Return a time in UTC as ISO 8601, whose text order is the order of times."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def describe_identity(identity: Identity, owner: str | None) -> Mapping[str, Any]:
    """Return the fields of a record that identify the caller."""
    return {
        "user": identity.owner if owner is None else owner,
        "actor": identity.actor,
        "method": identity.method,
        "key": identity.key,
        "address": identity.address,
    }


def seal(fields: Mapping[str, Any], number: int, previous: str, key: bytes) -> tuple[bytes, str]:
    """Return the line of a record, and its hash, which covers the hash of the previous line.

    The hash is computed from the values, independently of their escaping in the line.
    """
    body = {"number": number, **fields, "previous": previous}
    digest = compute_hash(body, key)
    return dumps_line({**body, "hash": digest}) + b"\n", digest


def compute_hash(body: Mapping[str, Any], key: bytes) -> str:
    """Return the hash of a line's other fields: an HMAC if there is a key, else SHA-256."""
    data = dumps(body)
    return hmac.digest(key, data, "sha256").hex() if key else sha256(data).hexdigest()


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the fields of a line. Raises `ValueError` if it is not a JSON object."""
    value: Any = loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _clip(text: str, longest: int) -> str:
    clipped = text[:longest].encode("utf-8", "replace")[:longest].decode("utf-8", "ignore")
    if len(dumps_line(clipped)) > longest + longest // 2:
        clipped = clipped[: longest // _LONGEST_ESCAPE]
    return f"{clipped}…" if len(clipped) < len(text) else clipped
