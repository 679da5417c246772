"""Writes what pages end up with on Node, and what differs with us.

`python -m tests.conformance.genui.record <Node's drive> [<our drive>]`, each a file of `drive.mjs`
with the client 1.74 over REST. Whoever calls it has read all that differs: each has a reason in
DIVERGENCES.md.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance.genui.compare import SECTIONS, normalize

HERE = Path(__file__).parent


def find_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Return our sections that are others than theirs; null for one that we have not."""
    return {name: ours.get(name) for name in SECTIONS if ours.get(name) != theirs.get(name)}


def save(name: str, pages: Mapping[str, Any]) -> None:
    lines = [
        f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in pages.items()
    ]
    (HERE / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    drives = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    theirs, *rest = [{key: normalize(it) for key, it in drive.items()} for drive in drives]
    save("expected.json", theirs)
    for ours in rest:
        found = {key: find_differences(ours[key], it) for key, it in theirs.items()}
        save("divergences.json", {key: it for key, it in found.items() if it})
        sys.stdout.write("\n".join(f"{key}: {', '.join(it)}" for key, it in found.items() if it))
        sys.stdout.write(f"\n{sum(not it for it in found.values())} of {len(found)} are alike.\n")


if __name__ == "__main__":
    main()
