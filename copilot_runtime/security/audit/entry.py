"""One line of the audit log, and the chain of hashes that lines are in."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from copilot_runtime.identity import Identity
from copilot_runtime.jsontext import dumps, loads

Outcome = Literal["allowed", "refused", "failed", "finished", "stopped"]
"""Of a request, and of a run that has ended."""

_LONGEST = 2_000
"""Characters of a text: ids and addresses come from clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What happened. `text` is there only if the operator allows content."""

    action: str
    outcome: Outcome
    reason: str = ""
    user: str | None = None
    method: str = ""
    key: str = ""
    address: str = ""
    thread: str = ""
    run: str = ""
    agent: str = ""
    status: int | None = None
    text: str = ""
    time: float = 0.0

    def encode(self) -> dict[str, Any]:
        """Return it as JSON, without what is empty."""
        moment = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["time"] = moment.replace("+00:00", "Z")
        order = ("time", *(name for name in fields if name != "time"))
        return {name: _clip(fields[name]) for name in order if fields[name] not in ("", None)}


def describe_identity(identity: Identity, owner: str | None) -> Mapping[str, Any]:
    """Return the fields of a record that say who somebody is."""
    return {
        "user": identity.owner if owner is None else owner,
        "method": identity.method,
        "key": identity.key,
        "address": identity.address,
    }


def seal(fields: Mapping[str, Any], number: int, previous: str, key: bytes) -> tuple[bytes, str]:
    """Return the line of a record, and its hash, which covers the hash of the line before."""
    body = {"number": number, **fields, "previous": previous}
    digest = compute_hash(body, key)
    return dumps({**body, "hash": digest}) + b"\n", digest


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


def _clip(value: Any) -> Any:
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
