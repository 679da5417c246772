"""Recordings of what clients end up with: files of JSON Lines, a line for each name.

`python -m tests.conformance.recordings v1/expected` packs the folder that a driver has written
with `--out` into `v1/expected.jsonl`.
"""

import json
import sys
from pathlib import Path
from typing import Any

Recordings = dict[str, Any]


def read_recordings(file: Path) -> Recordings:
    """Return the values of a file by their names, such as `1.50/text.rest`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {line["name"]: line["value"] for line in map(json.loads, lines)}


def pack(folder: Path) -> None:
    """Add the JSON files of a folder to the recordings beside it."""
    target = folder.with_name(f"{folder.name}.jsonl")
    recordings = read_recordings(target) if target.exists() else Recordings()
    for path in folder.rglob("*.json"):
        name = path.relative_to(folder).with_suffix("").as_posix()
        recordings[name] = json.loads(path.read_text(encoding="utf-8"))
    lines = [
        json.dumps({"name": name, "value": value}) for name, value in sorted(recordings.items())
    ]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        pack(Path(__file__).parent / argument)
