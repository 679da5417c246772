"""Change what is right, at places and in ways that a seed decides."""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, AnyStr, TypeVar

T = TypeVar("T")

ODD: Sequence[Any] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    10**30,
    -(10**30),
    1e308,
    float("inf"),
    float("nan"),
    "",
    " ",
    "0",
    "null",
    "\x00",
    "\ud800",
    "\udc00\ud800",
    "é\u202e\ufeff",
    "a/b/../%2f?#",
    "__proto__",
    "x" * 300,
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    {"type": "text"},
    {"id": None, "type": [], "role": {}},
)
"""Values where another was expected."""

ODD_BYTES: Sequence[bytes] = (
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\n\n",
    b"\r",
    b'"',
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"{",
    b"}",
    b"[" * 300,
    b"]",
    b",",
    b":",
    b"data: ",
    b"data: [DONE]\n\n",
    b"event: error\n",
    b"1e999",
    b"-",
    b"<html>",
)

MORE = (2, 7, 100, 3000)
"""How often something is repeated."""

LARGEST = 20_000_000
"""Texts grow no further: a body of 16 MiB is refused in any case."""


class Mutator:
    """Makes one input. The same seed makes the same one."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def change_json(self, value: T, *others: Any) -> T:
        """Return a copy with up to four changes; parts of `others` may come in."""
        changed: Any = copy.deepcopy(value)
        for _ in range(self.random.randint(1, 4)):
            with suppress(RecursionError):  # of a copy of what is nested hundreds of levels deep
                changed = self._change(changed, others)
        return changed

    def change_bytes(self, data: bytes, *others: bytes) -> bytes:
        """Return the bytes with up to three changes."""
        for _ in range(self.random.randint(1, 3)):
            start = self.random.randint(0, len(data))
            end = min(len(data), start + self.pick((0, 1, 2, 10, 200, len(data))))
            match self.random.randrange(5):
                case 0:
                    part = self.pick(ODD_BYTES)
                case 1:
                    part = b""
                case 2:
                    part = _repeat_text(data[start:end], self.pick(MORE[:3]))
                case 3:
                    other = self.pick(others) if others else data
                    at = self.random.randint(0, len(other))
                    part = other[at : at + self.pick((1, 20, 1000))]
                case _:
                    part = self.random.randbytes(self.pick((1, 4, 40)))
            data = data[:start] + part + data[end:]
        return data

    def change_order(self, items: Sequence[T]) -> list[T]:
        """Return a sequence in which some items are missing, repeated, or elsewhere."""
        found = [*items]
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(found))
            match self.random.randrange(4):
                case 0:
                    del found[at : at + 1]
                case 1:
                    found[at:at] = found[at : at + 1] * self.pick(MORE[:3])
                case 2:
                    found.insert(at, self.pick(items))
                case _:
                    found[at:] = found[at + 1 :] + found[at : at + 1]
        return found

    def blocks(self, data: bytes) -> list[bytes]:
        """Cut bytes as a network might."""
        match self.random.randrange(4):
            case 0:
                return [data]
            case 1 if len(data) < 3000:
                return [data[at : at + 1] for at in range(len(data))]
            case _:
                cuts = sorted(self.random.randint(0, len(data)) for _ in range(5))
                ends = [*cuts, len(data)]
                return [data[a:b] for a, b in zip([0, *cuts], ends, strict=True)]

    def dumps(self, value: Any) -> bytes:
        """Write JSON, sometimes with characters as they are, halves of them too."""
        try:
            text = json.dumps(value, ensure_ascii=self.chance(0.7))
        except RecursionError:  # several changes have nested it
            return b"[" * MORE[-1]
        return text.encode(errors="surrogatepass")

    def _change(self, value: Any, others: Sequence[Any]) -> Any:
        places = [*_places(value)]
        if not places:
            return self.pick(ODD)
        parent, key = self.pick(places)
        changes: Sequence[Callable[[Any, Any, Sequence[Any]], None]] = (
            self._replace,
            self._replace,
            self._remove,
            self._repeat,
            self._rename,
            self._nest,
            self._take_over,
        )
        self.pick(changes)(parent, key, others)
        return value

    def _replace(self, parent: Any, key: Any, _: Sequence[Any]) -> None:
        parent[key] = copy.deepcopy(self.pick(ODD))

    def _remove(self, parent: Any, key: Any, _: Sequence[Any]) -> None:
        del parent[key]

    def _repeat(self, parent: Any, key: Any, _: Sequence[Any]) -> None:
        """Repeat what is there; only now and then so often that it is large."""
        count = self.pick(MORE if self.chance(0.1) else MORE[:2])
        part = parent[key]
        if isinstance(part, str):
            parent[key] = _repeat_text(part, count)
            return
        times = min(count, 300_000 // (1 + len(str(part))))
        copies = [copy.deepcopy(part) for _ in range(times)]  # or a change of one changes all
        if isinstance(parent, list):
            parent[key:key] = copies
        else:
            parent[key] = copies

    def _rename(self, parent: Any, key: Any, _: Sequence[Any]) -> None:
        if isinstance(parent, dict):
            parent[str(self.pick(ODD))[:300]] = parent.pop(key)
        else:
            self.random.shuffle(parent)

    def _nest(self, parent: Any, key: Any, _: Sequence[Any]) -> None:
        for _level in range(self.pick((1, 2, 20, 300))):
            parent[key] = [parent[key]] if self.chance(0.5) else {"a": parent[key]}

    def _take_over(self, parent: Any, key: Any, others: Sequence[Any]) -> None:
        if others and (places := [*_places(self.pick(others))]):
            other, at = self.pick(places)
            parent[key] = copy.deepcopy(other[at])


def _repeat_text(text: AnyStr, count: int) -> AnyStr:
    """Return a text so many times, but no longer than is refused in any case."""
    return text * min(count, max(1, LARGEST // (len(text) or 1)))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value with each of its keys."""
    waiting = [value]
    while waiting and (found := waiting.pop()) is not None:
        if isinstance(found, dict):
            keys: Sequence[Any] = [*found]
        elif isinstance(found, list):
            keys = range(min(len(found), 50))
        else:
            continue
        for key in keys:
            yield found, key
            if isinstance(found[key], dict | list):
                waiting.append(found[key])
