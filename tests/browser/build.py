"""Builds `examples/react-v1`, unless the build at hand is newer than its sources."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "react-v1"
SOURCES = ("package-lock.json", "package.json", "index.html", "vite.config.ts", "tsconfig.json")


def built_page() -> Path:
    """Return the folder of the built page, building it first if need be."""
    page = EXAMPLE / "dist"
    if not _is_marked(page, _digest(*SOURCES, "src")):
        _npm("build", "run", "build")
        _mark(page, _digest(*SOURCES, "src"))
    return page


def _npm(purpose: str, *arguments: str) -> None:
    modules = EXAMPLE / "node_modules"
    if purpose == "build" and not _is_marked(modules, _digest("package-lock.json")):
        _npm("install", "ci")
        _mark(modules, _digest("package-lock.json"))
    npm = shutil.which("npm")
    assert npm, "npm was not found: the example is built with Node 20 or newer"
    # VITE_RUNTIME_URL would point the page away from the runtime under test
    environment = {name: value for name, value in os.environ.items() if "VITE_" not in name}
    done = subprocess.run(
        [npm, *arguments], cwd=EXAMPLE, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"


def _digest(*names: str) -> str:
    """Return what these files and folders of the example hold, as one number."""
    digest = hashlib.sha256()
    for name in names:
        path = EXAMPLE / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(EXAMPLE)).encode() + file.read_bytes())
    return digest.hexdigest()


def _mark(folder: Path, digest: str) -> None:
    (folder / ".built-from").write_text(digest)


def _is_marked(folder: Path, digest: str) -> bool:
    mark = folder / ".built-from"
    return mark.exists() and mark.read_text() == digest
