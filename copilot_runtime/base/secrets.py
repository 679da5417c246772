"""Keep secrets out of every text that leaves this process: log lines, errors, traces and tables.

There is one `REDACTOR`, as there is one root logger: a value that is secret in one part of the
process may be printed by any other. It knows secrets by their value, and others by their form.
"""

import json
import re
from base64 import b64decode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from math import inf
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

MASK = "***"

SECRET_NAMES = re.compile(
    r"(?!.*_per_key$|(?-i:(OLD)?PWD)$)((.*[._-])?(key|pwd|cookie|signature)|.+[._-](jwt|assertion)|.*(api|access|private)key"
    r"|.*(token|secrets?|passw(or)?d|passphrase|authorization|credentials?))",
    re.IGNORECASE,
)
"""Matches the names of settings, headers, variables and parameters that hold secrets."""

SECRET_PARAMETER = re.compile(
    r"([?&;#](?:sig|jwt|code|[^=?&;#\s]{0,64}?(?:key|token|secret|passw|pwd|credential|auth|assertion|"
    r"signature)[^=?&;#\s]{0,64})=)[^&\s\"'<>]*",
    re.IGNORECASE,
)
"""A parameter of a URL with a secret; the group has its name."""

_FORMS = re.compile(
    r"(?P<user>://)(?:[^\s/?#\"'<>]{1,512}(?=@)"
    r"|[^\s/?#@:\[\"'<>]{0,128}:(?!\d{1,5}[/?#])(?:(?!://)[^\s\"'<>]){1,512}(?=@))"
    r"|(?P<scheme>\b(?:[Bb]earer|[Bb]asic) )(?=\S*\d)[\w.~+/-]{8,}=*"
)
"""The user of a URL, up to the last `@` if its password is not encoded, and a credential behind its
scheme."""

_PAIR = re.compile(r"([:=] {0,2}(\\{0,3}[\"']))((?:(?!\2)(?:\\.|[^\s\\])){6,4096}+)(?=\2)")
"""A quoted value behind a name, as in JSON, YAML and the `repr` of an object.

A backslash has one reading, and no repetition is tried again: the time is linear in the text.
"""

_PAIR_NAMES = (
    *(
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "subscriptionkey",
        "token",
        "secret",
        "jwt",
    ),
    *("password", "passwd", "passphrase", "authorization", "credential", "credentials", "cookie"),
)
"""Ends of the names of such secrets. Others, such as `sort_key`, operators have to see."""

_URL = re.compile(r"(?<![a-z0-9+.-])[a-z0-9+.-]++://\S+", re.IGNORECASE)
_PATH_KEY = re.compile(
    r"/((?=[^/]*\d)(?=[^/]*[a-z])(?=[^/]*[A-Z])[\w-]{16,}|[0-9a-f-]{32,36})(?![^/])"
)
"""A segment of a path that is a key, as MCP servers and webhooks have, and no name."""

_DISTINCT = re.compile(r"(?=.*[A-Za-z])((?=.*[^A-Za-z\s]).{8,}|(?=.*\d).{6,})|.{16,}", re.DOTALL)
"""A text that is not likely to be a word of a sentence, as the password `postgres` is.

Any text of 16 characters is one.
"""

_SHORTEST = 6
_MOST = 256
"""Maximum number of known values: tokens that expire are learnt again and again."""

_SEARCHED = 4096
"""Length of the part of a text in which URLs, pairs and lines are searched."""

_PER_VALUE = 16
"""Characters that a value without a text counts as."""

_MOST_PROPERTIES = 256 * 1024
"""Number of characters of a request's properties that are searched."""

_PUBLIC_PATHS = ("issuer", "jwks")
_PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "user-agent"}
)


class Redactor:
    """Replaces secrets in texts. It learns values from settings, headers, URLs and variables."""

    def __init__(self) -> None:
        self._values: Mapping[str, None] = {}
        self._longest_first: Sequence[str] = ()

    def add(self, value: str) -> None:
        """Learn a secret, also as it is written in URLs and JSON; a very short one is ignored."""
        if value in self._values or len(value) < _SHORTEST:
            return
        forms = (value, quote(value, safe=""), json.dumps(value)[1:-1])
        values = {**self._values, **dict.fromkeys(forms)}
        while len(values) > _MOST:  # those of the settings came first, and stay
            del values[next(islice(values, _MOST // 2, None))]
        self._values = values
        self._longest_first = sorted(values, key=len, reverse=True)  # one may contain another

    def add_key(self, key: str) -> None:
        """Learn the key of a provider, unless it is a word, as servers that need none are given."""
        if key not in self._values and _DISTINCT.fullmatch(key):
            self.add(key)

    def learn(self, value: Any) -> None:
        """Learn the secrets in a nested value, by the names in it, and those in URLs."""
        for secret in find_secrets(value):
            self.add(secret)

    def hide(self, text: str) -> str:
        """Return a text without known secrets, and those of the current request."""
        # 60 searches take half the time of one regular expression with 60 alternatives
        for value in self._longest_first:
            if value in text:
                text = text.replace(value, MASK)
        for source in _CARRIED.get():
            for secret in find_secrets(source):
                text = text.replace(secret, MASK)
        return text

    def redact(self, text: str) -> str:
        """Return a text without known secrets, and without what has the form of one."""
        text = self.hide(text)
        if "://" in text or "earer " in text or "asic " in text:
            text = _FORMS.sub(_mask_form, text)
        if '"' in text or "'" in text:
            text = _PAIR.sub(_mask_pair, text, count=10_000)  # or it blocks the event loop
        return SECRET_PARAMETER.sub(rf"\1{MASK}", text) if "=" in text else text

    def redact_all(self, value: Any) -> Any:
        """Return a nested value whose texts are redacted."""
        match value:
            case str():
                return self.redact(value)
            case Mapping():
                items = cast("Mapping[Any, Any]", value).items()
                return {name: self.redact_all(item) for name, item in items}
            case list() | tuple():
                return [self.redact_all(item) for item in cast("Sequence[Any]", value)]
            case _:
                return value


REDACTOR = Redactor()
"""The redactor of this process."""

_CARRIED: ContextVar[Sequence[Any]] = ContextVar("copilot_runtime.request_secrets", default=())


def carry_headers(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Redact the secrets in the headers of a request, in place of those of an earlier one.

    They are searched only when a text is redacted, and forgotten with the current context.
    """
    _CARRIED.set((headers,))


def carry_properties(properties: Mapping[str, Any]) -> None:
    """Redact the secrets in the properties of a request as well. Use it in a context of its own."""
    # not the properties: a context may outlive them
    found = find_secrets(properties, most=_MOST_PROPERTIES)
    if secrets := [*islice(found, _MOST)]:
        _CARRIED.set((*_CARRIED.get(), {"secrets": secrets}))


def find_secrets(value: Any, *, most: float = inf) -> Iterator[str]:
    """Yield the secrets in a nested value: texts below the name of one, and those in URLs.

    A list of pairs has the headers of a request; models of pydantic are read by their fields. Level
    by level, about `most` characters are searched.
    """
    pending = deque([(value, "", False)])
    while pending and most > 0:
        value, name, is_secret = pending.popleft()
        most -= _PER_VALUE
        if (reveal := getattr(value, "get_secret_value", None)) is not None:
            value, is_secret = reveal(), True
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if isinstance(value, str):
            most -= min(len(value), _SEARCHED)
            yield from _split_text(value, name, is_secret=is_secret)
        else:
            items = _list_items(value, name, is_secret)
            pending.extend(items if most == inf else islice(items, int(most) // _PER_VALUE))


def _list_items(value: Any, name: str, is_secret: bool) -> Iterator[tuple[Any, str, bool]]:
    """Yield the items of a value, each with its name, and whether that is one of a secret."""
    if isinstance(value, list | tuple) and not _is_pairs(cast("Sequence[Any]", value)):
        for item in cast("Sequence[Any]", value):
            yield item, name, is_secret
    elif (pairs := _list_pairs(value)) is not None:
        is_headers = name.lower().endswith("headers")
        for key, item in pairs:
            key = key.decode("latin-1") if isinstance(key, bytes) else str(key)
            has_secret = SECRET_NAMES.fullmatch(key) is not None
            has_secret = has_secret or (is_headers and key.lower() not in _PLAIN_HEADERS)
            yield item, key, is_secret or has_secret


def _is_pairs(value: Sequence[Any]) -> bool:
    return bool(value) and isinstance(value[0], tuple) and len(cast("Any", value[0])) == 2


def _list_pairs(value: Any) -> Iterable[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value).items()
    if isinstance(value, list | tuple) or hasattr(type(value), "model_fields"):
        return cast("Iterable[tuple[Any, Any]]", value)
    return None


def _split_text(text: str, name: str, *, is_secret: bool) -> Iterator[str]:
    """Yield the secrets in one text: itself and its parts, or those of the URLs in it."""
    start = text[:_SEARCHED]
    found = [secret for url in _URL.findall(start) for secret in _split_url(url, name)]
    if name.lower().endswith("headers"):  # as in OTEL_EXPORTER_OTLP_HEADERS
        found += [unquote(part.partition("=")[2]) for part in start.split(",")]
    elif name.lower() in ("cookie", "set-cookie"):
        found += [part.partition("=")[2] for part in re.split(r";\s*", start)]
    elif is_secret and "://" not in start:
        scheme, _, credential = text.partition(" ")
        found += [text, credential, *start.splitlines()]  # lines, for the keys of PEM files
        if scheme.lower() == "basic":
            with suppress(ValueError):
                found.append(b64decode(credential).decode().partition(":")[2])
    return (secret for secret in found if _DISTINCT.fullmatch(secret[:16]))


def _split_url(url: str, name: str) -> Iterator[str]:
    """Yield the password and the keys of a URL; its user, if it has no password."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket
        return
    user, _, _ = parts.netloc.rpartition("@")
    login, colon, password = user.partition(":")
    yield from {password, unquote(password)} if colon else {login, unquote(login)}
    for key, value in parse_qsl(parts.query):
        if SECRET_NAMES.fullmatch(key) or SECRET_PARAMETER.match(f"?{key}=x"):
            yield value
    if name not in _PUBLIC_PATHS and parts.scheme in ("http", "https"):
        yield from _PATH_KEY.findall(parts.path)


def _mask_form(found: re.Match[str]) -> str:
    return f"{found['user'] or found['scheme']}{MASK}"


def _mask_pair(found: re.Match[str]) -> str:
    start = found.start()
    name = found.string[max(0, start - 32) : start].rstrip(" \"'\\").lower()
    is_secret = re.sub("[_-]", "", name).endswith(_PAIR_NAMES)
    return f"{found[1]}{MASK}" if is_secret and _DISTINCT.fullmatch(found[3][:16]) else found[0]
