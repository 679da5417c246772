"""Classification of third-party attributes: content, secret or neither.

The author of a third-party span and its names are unknown. So a text counts as content, unless its
attribute name is known to hold none: a name of the conventions, or one that ends like an id.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from copilot_runtime.extensions.tracing.dialects import FACTS as DIALECT_FACTS
from copilot_runtime.telemetry import semconv

_SECRETS = re.compile(
    r"(^|[^a-z])(pass(word|wd|phrase)|secrets?|credentials?|authorization|cookies?|bearer"
    r"|(auth|access|refresh|id|session|api|bearer|csrf)?[._-]?token"
    r"|(api|access|private|secret|signing)[._-]?key)$",
    re.IGNORECASE,
)
"""Endings of attribute names that hold secrets."""
_NAMESPACES = (
    *("service.", "telemetry.", "deployment.", "cloud.", "container.", "faas.", "host.", "k8s."),
    *("os.", "device.", "browser.", "process.runtime.", "thread.", "code.", "otel.", "openai."),
    *("server.", "client.", "peer.", "network.", "net.", "rpc.", "user_agent.", "tls.", "dns."),
)
"""Prefixes of the conventions' names that hold no content."""
_NAMES = frozenset(
    (
        *(semconv.ERROR_TYPE, semconv.EXCEPTION_TYPE, "exception.escaped", "log.iostream"),
        "log.file.name",
        *("process.executable.name", "url.scheme", "url.domain", "url.full", "url.original"),
        *("url.path", "url.template", "http.method", "http.request.method", "http.route"),
        *("http.scheme", "http.flavor", "http.host", "http.url", "http.target", "http.user_agent"),
        *("db.system", "db.name", "db.operation", "db.sql.table", "messaging.system"),
        *("messaging.operation.name", "messaging.destination.name", "graphql.operation.name"),
        *DIALECT_FACTS,
    )
)
"""Further names that hold no content, of the conventions and the dialects that we read."""
_SHAPES = frozenset(
    ("id", "ids", "uuid", "kind", "type", "types", "code", "codes", "version", "model", "status")
)
"""Endings of other names that hold no content, if the text is a single word."""
_LONGEST_WORD = 200
_CONTENT_WORDS = frozenset(
    (
        *("argument", "arguments", "args", "body", "content", "contents", "document", "documents"),
        *("header", "headers", "input", "inputs", "kwargs", "messages", "metadata", "output"),
        *("outputs", "parameter", "parameters", "param", "params", "prompt", "prompts"),
        *("properties", "stacktrace", "variables"),
    )
)
"""Name parts that mark content in any position: parts of a message are named after it."""
_BORDER = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_URLS = frozenset(("url.full", "url.original", "http.url", "http.target"))
_URL_SECRETS = re.compile(r"(?<=//)[^/?#@]*@|[?#].*", re.DOTALL)


def has_content(name: str, value: Any) -> bool:
    """Return True if an attribute of a third-party span may hold content.

    Numbers never do. Query texts count as content, because they may include values.
    """
    if semconv.is_content(name):
        return True
    if value is None or isinstance(value, bool | int | float):
        return False
    if name in semconv.ATTRIBUTES:
        return name == semconv.DB_QUERY_TEXT
    match value:
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return any(has_content(str(key), member) for key, member in members.items())
        case list() | tuple():
            return any(has_content(name, item) for item in cast("Sequence[Any]", value))
        case str():
            return not _is_fact(name, value)
        case _:
            return True


def _is_fact(name: str, text: str) -> bool:
    """Return True if a text holds no content, judged by its attribute name."""
    if name in _NAMES or semconv.is_identity(name):
        return True
    words = [word.lower() for word in _BORDER.split(name) if word]
    if not words or is_secret(name) or not _CONTENT_WORDS.isdisjoint(words):
        return False
    is_word = len(text) <= _LONGEST_WORD and len(text.split()) <= 1
    return name.startswith(_NAMESPACES) or (is_word and words[-1] in _SHAPES)


def is_secret(name: str) -> bool:
    """Return True if an attribute's name looks like a password, a key or a token."""
    return name not in semconv.ATTRIBUTES and _SECRETS.search(name) is not None


def drop_secrets(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes without the texts whose names look like secrets, at any depth."""
    return {
        name: _drop_inner_secrets(value)
        for name, value in attributes.items()
        if isinstance(value, bool | int | float) or not is_secret(name)
    }


def _drop_inner_secrets(value: Any) -> Any:
    match value:
        case Mapping():
            return drop_secrets(cast("Mapping[str, Any]", value))
        case list() | tuple():
            return [*map(_drop_inner_secrets, cast("Iterable[Any]", value))]
        case _:
            return value


def clean_value(name: str, value: Any) -> Any:
    """Return the value of an attribute; URLs are stripped by `strip_url`."""
    return strip_url(value) if name in _URLS and isinstance(value, str) else value


def strip_url(url: str) -> str:
    """Return a URL without its credentials, query and fragment."""
    return _URL_SECRETS.sub("", url)
