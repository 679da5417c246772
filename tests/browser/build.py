"""Builds the React examples, unless the build at hand is newer than its sources."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = ("package-lock.json", "package.json", "index.html", "vite.config.ts", "tsconfig.json")


def built_page(name: str) -> Path:
    """Return the folder of an example's built page, building it first if need be."""
    example = EXAMPLES / name
    page = example / "dist"
    if not _is_marked(page, _digest(example, *SOURCES, "src")):
        modules = example / "node_modules"
        if not _is_marked(modules, _digest(example, "package-lock.json")):
            _npm(example, "ci")
            _mark(modules, _digest(example, "package-lock.json"))
        _npm(example, "run", "build")
        _mark(page, _digest(example, *SOURCES, "src"))
    return page


def _npm(example: Path, *arguments: str) -> None:
    npm = shutil.which("npm")
    assert npm, "npm was not found: the example is built with Node 20 or newer"
    # the page shall find the runtime under test, which serves it
    environment = {name: value for name, value in os.environ.items() if "VITE_" not in name}
    environment["VITE_RUNTIME_URL"] = "/graphql"
    done = subprocess.run(
        [npm, *arguments], cwd=example, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"


def _digest(example: Path, *names: str) -> str:
    """Return what these files and folders of the example hold, as one number."""
    digest = hashlib.sha256()
    for name in names:
        path = example / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(example)).encode() + file.read_bytes())
    return digest.hexdigest()


def _mark(folder: Path, digest: str) -> None:
    (folder / ".built-from").write_text(digest)


def _is_marked(folder: Path, digest: str) -> bool:
    mark = folder / ".built-from"
    return mark.exists() and mark.read_text() == digest
