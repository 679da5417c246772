"""One line of the audit log, and the chain of hashes that lines are in."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from copilot_runtime.api.identity import Identity
from copilot_runtime.base.jsontext import dumps, dumps_line, loads

Outcome = Literal["allowed", "refused", "failed", "finished", "stopped"]
"""Of a request, and of a run that has ended."""

_LONGEST = 2_000
"""Bytes of a text: ids and addresses come from clients."""
_LONGEST_QUESTION = 8_000
_LONGEST_ESCAPE = 6
"""Bytes of one in JSON, such as those of a control character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What happened. `text` is there only if the operator allows content."""

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
        """Return it with what is too long cut off, also to wait in memory.

        Half a character, which JSON may have, becomes a question mark: it has no bytes to hash.
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
        """Return it as JSON, without what is empty."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["time"] = format_time(self.time)
        order = ("time", *(name for name in fields if name != "time"))
        return {name: fields[name] for name in order if fields[name] not in ("", None)}


def format_time(seconds: float) -> str:
    """Return a time as lines have it: in UTC, so that the order of the texts is that of times."""
    moment = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")


def describe_identity(identity: Identity, owner: str | None) -> Mapping[str, Any]:
    """Return the fields of a record that say who somebody is."""
    return {
        "user": identity.owner if owner is None else owner,
        "actor": identity.actor,
        "method": identity.method,
        "key": identity.key,
        "address": identity.address,
    }


def seal(fields: Mapping[str, Any], number: int, previous: str, key: bytes) -> tuple[bytes, str]:
    """Return the line of a record, and its hash, which covers the hash of the line before.

    A hash is that of the values, however the line has them escaped.
    """
    body = {"number": number, **fields, "previous": previous}
    digest = compute_hash(body, key)
    return dumps_line({**body, "hash": digest}) + b"\n", digest


def compute_hash(body: Mapping[str, Any], key: bytes) -> str:
    """Return the hash of a line without its own; with a key, only who has it can make one."""
    data = dumps(body)
    return hmac.digest(key, data, "sha256").hex() if key else sha256(data).hexdigest()


def parse_line(line: bytes) -> dict[str, Any]:
    """Return what a line has. Raises `ValueError`."""
    value: Any = loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


def _clip(text: str, longest: int) -> str:
    clipped = text[:longest].encode("utf-8", "replace")[:longest].decode("utf-8", "ignore")
    if len(dumps_line(clipped)) > longest + longest // 2:
        clipped = clipped[: longest // _LONGEST_ESCAPE]
    return f"{clipped}…" if len(clipped) < len(text) else clipped
