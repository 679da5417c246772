"""Packages of npm, and what is built with them: made once, however many tests want them."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path


def install(folder: Path) -> None:
    """Install what the lock file of a folder names; a changed lock file installs it anew."""
    once(
        folder / "node_modules",
        [folder / "package-lock.json"],
        lambda: npm(folder, "ci", "--ignore-scripts"),
    )


def once(made: Path, sources: Sequence[Path], make: Callable[[], None]) -> None:
    """Make a folder of its sources, unless the one at hand was made of the same ones.

    Who wants it meanwhile waits, also in another process. What is made of other such folders may
    make them on its way: each has a lock of its own.
    """
    digest, mark = _digest(sources), made / ".made-from"
    if _is_marked(mark, digest):
        return
    name = hashlib.sha256(str(made.resolve()).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"copilot-runtime-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_marked(mark, digest):
            make()
            mark.write_text(digest)


def npm(folder: Path, *arguments: str) -> None:
    program = shutil.which("npm")
    assert program, "npm was not found: install Node 20 or newer"
    # the page shall find the runtime under test, which serves it
    environment = {name: value for name, value in os.environ.items() if "VITE_" not in name}
    environment["VITE_RUNTIME_URL"] = "/graphql"
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"


def _digest(sources: Sequence[Path]) -> str:
    """Return what these files and folders hold, as one number."""
    digest = hashlib.sha256()
    for source in sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file():
                name = file.relative_to(source.parent)
                digest.update(str(name).encode() + file.read_bytes())
    return digest.hexdigest()


def _is_marked(mark: Path, digest: str) -> bool:
    return mark.exists() and mark.read_text() == digest
