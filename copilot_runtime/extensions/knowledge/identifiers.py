"""Identifiers of resources, and the hashes used in their names."""

import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePath
from unicodedata import normalize

from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    JsonValue,
    as_count,
    as_list,
    get_text,
    require_object,
    to_text,
)

BASE = "https://example.invalid/"
"""The address of the folder of documents, if none is set."""
_NAMESPACE = "cld:"
FOLDER = "common.Folder"
DOCUMENT = "common.Document"
CHUNK = "common.Chunk"
THING = "common.Message"
"""The type of things of annotated HTML, which Copilot-LD gives to texts as well."""
_LONGEST_PART = 200
"""Maximum bytes of a part of a path in a URI, which is a file name in a local storage."""

_SHORT = 8
_LONG = 32
_KEY = 16
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+")


@dataclass(frozen=True, slots=True)
class Identifier:
    """The identifier of a resource, with the values that an index adds to it.

    `str(identifier)` is its URI: `type.name`, behind the URI of its parent and a slash if it has
    one, as in `common.Conversation.c1/common.Message.m1`. A type is two words with a dot between;
    in a name, a dot is written `%2E`, a slash `%2F`, a colon `%3A` and a percent sign `%25`.
    """

    type: str
    name: str
    parent: str = ""
    """The URI of the parent."""
    tokens: int | None = field(default=None, compare=False)
    """Estimated number of tokens of the content."""
    score: float | None = field(default=None, compare=False)
    """Relevance to a search: higher is better."""
    subjects: tuple[str, ...] = field(default=(), compare=False)
    """The IRIs of the subjects of its content."""

    def __post_init__(self) -> None:
        if not self.type or not self.name:
            raise Misuse(
                "resource.Identifier.toString: Resource name must not be null"
                if self.type
                else "resource.Identifier.toString: Resource type must not be null: "
                + to_text({"type": self.type, "name": self.name})
            )
        parent = self.parent.rpartition(":")[2]
        object.__setattr__(self, "parent", "" if parent == "undefined" else parent)

    def __str__(self) -> str:
        own = f"{self.type}.{escape_name(self.name)}"
        return f"{self.parent}/{own}" if self.parent else own

    @property
    def urn(self) -> str:
        """The URI in the namespace of Copilot-LD, which its older documents write: `cld:…`."""
        return f"{_NAMESPACE}{self}"

    def score_as(self, score: float) -> "Identifier":
        """Return a copy with the score of a search."""
        return replace(self, score=score)


def parse_identifier(uri: str, tokens: int | None = None) -> Identifier:
    """Parse a URI or URN into an identifier. Raises `Misuse`.

    If the last part has more than two dots, the type ends before the second dot, and the name
    begins after the last one.
    """
    path = strip_namespace(uri)
    parent, _, last = path.rpartition("/")
    words = last.split(".")
    if len(words) < 3 or not all((words[0], words[1], words[-1])):
        raise Misuse(
            f"{uri[:200]!r} names no resource.", hint="For example: common.Message.m1 or cld:…"
        )
    name = unescape_name(words[-1])
    return Identifier(f"{words[0]}.{words[1]}", name, parent, tokens=tokens)


def check_uri(uri: str) -> str:
    """Return a URI in which each part names a resource. Raises `Misuse`."""
    for end in (at for at, char in enumerate(f"{uri}/") if char == "/"):
        parse_identifier(uri[:end])
    return uri


def strip_namespace(uri: str) -> str:
    """Return a URI or URN without the prefix `cld:`."""
    return uri.removeprefix(_NAMESPACE)


def encode_identifier(identifier: Identifier) -> JsonObject:
    """Return an identifier as JSON, the form in files and on the wire."""
    encoded: JsonObject = {
        "type": identifier.type,
        "name": identifier.name,
        "parent": identifier.parent,
    }
    if identifier.subjects:
        encoded["subjects"] = [*identifier.subjects]
    if identifier.tokens is not None:
        encoded["tokens"] = identifier.tokens
    if identifier.score is not None:
        encoded["score"] = identifier.score
    return encoded


def decode_identifier(value: JsonValue) -> Identifier:
    """Read the JSON of an identifier. Raises `Misuse`."""
    fields = require_object(value, "identifier")
    score = fields.get("score")
    return Identifier(
        get_text(fields, "type"),
        get_text(fields, "name"),
        get_text(fields, "parent"),
        tokens=as_count(fields.get("tokens")),
        score=float(score) if isinstance(score, int | float) else None,
        subjects=tuple(item for item in as_list(fields.get("subjects")) if isinstance(item, str)),
    )


def get_type(uri: str) -> str:
    """Return the type of the resource that a URI names."""
    words = uri.rpartition("/")[2].split(".", 2)
    return ".".join(words[:2])


def contains(parent: str, uri: str) -> bool:
    """Return whether a URI is `parent` or a descendant; a common prefix alone does not count."""
    return uri == parent or uri.startswith(f"{parent}/")


def hash_values(*values: str | None, length: int = _LONG) -> str:
    """Return a SHA-256 of all values that are not empty, in `length` hexadecimal digits.

    With eight of them it is the hash of Copilot-LD, of which 100,000 collide in two cases of
    three; the 32 of ours do not.
    """
    text = ".".join(value for value in values if value)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def shorten_uri(uri: str) -> str:
    """Return the key of a URI, which stands for it in links: 16 hexadecimal digits of its hash."""
    return hash_values(uri, length=_KEY)


def hash_short(*values: str | None) -> str:
    """Return the hash of eight digits that Copilot-LD names its resources by."""
    return hash_values(*values, length=_SHORT)


@lru_cache(1024)
def identify_file(path: str) -> Identifier:
    """Return the identifier of a file, below the folders of its path, as `Source.name` has it.

    `handbook/hr/pay.md` is `common.Folder.handbook/common.Folder.hr/common.Document.pay%2Emd`. A
    character that no storage key has is `&#10;`, so that rules match the rest of the name, and a
    part of the path that is too long is its hash. Letters are in NFC, as people type them in rules;
    archives of macOS have them in NFD.
    """
    *folders, name = map(_shorten_part, PurePath(normalize("NFC", path)).parts or (".",))
    parent = "/".join(f"{FOLDER}.{escape_name(folder)}" for folder in folders)
    return Identifier(DOCUMENT, name, parent)


def name_file(path: Path) -> str:
    """Return the name of a file as `Source.name` has it."""
    absolute = os.path.abspath(path)  # noqa: PTH100 - symbolic links are names of their own
    relative = os.path.relpath(absolute)
    return read_name(absolute if Path(relative).parts[:1] == ("..",) else relative)


def read_name(name: str) -> str:
    """Return the name of a file as text, replacing undecodable bytes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def find_path(uri: str) -> str:
    """Return the path of the file or folder that a resource is or is in, else an empty string."""
    parts: list[str] = []
    for part in uri.split("/"):
        if get_type(part) not in (FOLDER, DOCUMENT):
            break
        parts.append(unescape_name(part.rpartition(".")[2]))
        if get_type(part) == DOCUMENT:
            break
    return str(PurePath(*parts)) if parts else ""


def find_thing(uri: str) -> str:
    """Return the name that a thing of annotated HTML has in each of its files, or an empty string.

    It is the last part of the URI, which has a hash of the IRI of the thing.
    """
    parent, _, name = uri.rpartition("/")
    is_thing = get_type(name) == THING and (not parent or parent.startswith((FOLDER, DOCUMENT)))
    return name if is_thing else ""


def _shorten_part(part: str) -> str:
    """Return a part of a path with references for characters of no storage key, or its hash."""
    if not part.isprintable() or "\\" in part or "&#" in part:
        part = part.replace("&#", "&#38;#").replace("\\", "&#92;")
        part = "".join(it if it.isprintable() else f"&#{ord(it)};" for it in part)
    return part if len(escape_name(part).encode()) <= _LONGEST_PART else hash_values(part)


def escape_name(name: str) -> str:
    """Return a name percent-encoded for a URI."""
    return name.replace("%", "%25").replace(".", "%2E").replace("/", "%2F").replace(":", "%3A")


def unescape_name(name: str) -> str:
    """Return the original of a name that `escape_name` encoded."""
    name = name.replace("%3A", ":").replace("%2F", "/").replace("%2E", ".")
    return name.replace("%25", "%")


def check_base(base: str) -> str:
    """Return a valid base IRI of pages. Raises `ConfigurationFailed` if it is not an IRI."""
    if _IRI.fullmatch(base):
        return base
    raise ConfigurationFailed(
        f"The base {base[:200]!r} is no IRI.",
        hint="Write a whole one, such as https://intranet.example/kb/.",
    )
