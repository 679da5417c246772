"""Names of resources, and the hashes they are made of."""

import hashlib
from dataclasses import dataclass, field, replace

from copilot_runtime.errors import Misuse

_NAMESPACE = "cld:"
_SHORT = 8
_LONG = 32


@dataclass(frozen=True, slots=True)
class Identifier:
    """Which resource is meant, and what an index says about it.

    `str(identifier)` is its URI: `type.name`, behind the URI of its parent and a slash if it has
    one, as in `common.Conversation.c1/common.Message.m1`. A type is two words with a dot between;
    in a name, a dot is written `%2E`, a slash `%2F` and a percent sign `%25`.
    """

    type: str
    name: str
    parent: str = ""
    """The URI of the parent."""
    tokens: int | None = field(default=None, compare=False)
    """How many tokens the content has, about."""
    score: float | None = field(default=None, compare=False)
    """How well it answers a search: higher is better."""
    subjects: tuple[str, ...] = field(default=(), compare=False)
    """The IRIs of the things it is about."""

    def __post_init__(self) -> None:
        if not self.type or not self.name:
            what = "name" if self.type else "type"
            raise Misuse(f"resource.Identifier.toString: Resource {what} must not be null")
        parent = self.parent.rpartition(":")[2]
        object.__setattr__(self, "parent", "" if parent == "undefined" else parent)

    def __str__(self) -> str:
        own = f"{self.type}.{_escape(self.name)}"
        return f"{self.parent}/{own}" if self.parent else own

    @property
    def urn(self) -> str:
        """The URI in the namespace of Copilot-LD, which its older documents write: `cld:…`."""
        return f"{_NAMESPACE}{self}"

    def score_as(self, score: float) -> "Identifier":
        """Return it as an answer to a search."""
        return replace(self, score=score)


def parse_identifier(uri: str) -> Identifier:
    """Return what a URI or URN names. Raises `Misuse`.

    Of a last part with more than two dots, type is what stands before the second one, and name
    what stands behind the last one.
    """
    path = uri.rpartition(":")[2] if uri.startswith(_NAMESPACE) else uri
    parent, _, last = path.rpartition("/")
    words = last.split(".")
    if len(words) < 3 or not all((words[0], words[1], words[-1])):
        raise Misuse(
            f"{uri[:200]!r} names no resource.", hint="For example: common.Message.m1 or cld:…"
        )
    return Identifier(f"{words[0]}.{words[1]}", _unescape(words[-1]), parent)


def contains(parent: str, uri: str) -> bool:
    """Return whether a URI is `parent` or below it: never for a mere longer name."""
    return uri == parent or uri.startswith(f"{parent}/")


def hash_values(*values: str | None, length: int = _LONG) -> str:
    """Return a SHA-256 of all values that are not empty, in `length` hexadecimal digits.

    With eight of them it is the hash of Copilot-LD, of which 100,000 collide in two cases of
    three; the 32 of ours do not.
    """
    text = ".".join(value for value in values if value)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def hash_short(*values: str | None) -> str:
    """Return the hash of eight digits that Copilot-LD names its resources by."""
    return hash_values(*values, length=_SHORT)


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace(".", "%2E").replace("/", "%2F")


def _unescape(name: str) -> str:
    return name.replace("%2F", "/").replace("%2E", ".").replace("%25", "%")
