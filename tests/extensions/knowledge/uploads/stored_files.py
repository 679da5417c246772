"""What is in a folder in which a server writes and deletes at the same moment."""

import os
from contextlib import suppress
from pathlib import Path


def find_files(folder: Path, text: bytes) -> list[str]:
    """Return the files of uploads below a folder: by their name, or by a text that is in them."""
    found: list[str] = []
    for place, _, names in os.walk(folder):  # passes over what is deleted meanwhile
        for name in names:
            path = Path(place, name)
            with suppress(FileNotFoundError):
                if "file.Upload" in str(path) or text in path.read_bytes():
                    found.append(str(path.relative_to(folder)))
    return sorted(found)
