"""Statements that the fuzzer of the SQL guard begins with: honest ones, and every known way out.

One statement or word stands in each line of the files in `analyst`; `{file}`, `{folder}`,
`{database}` and `{port}` stand for places that must not be reached.
"""

from pathlib import Path

_FOLDER = Path(__file__).parent / "analyst"


def _read(name: str) -> tuple[str, ...]:
    return tuple((_FOLDER / name).read_text(encoding="utf-8").splitlines())


HONEST = _read("honest.sql")
HOSTILE = _read("hostile.sql")
WORDS = _read("words.txt")
