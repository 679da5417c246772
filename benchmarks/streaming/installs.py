"""Install what peers need, on first use: npm packages, a virtual environment, nothing else."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.streaming.suite import Prepare


def nginx() -> str:
    """Look for nginx. Returns why it cannot run, or ""."""
    return "" if shutil.which("nginx") else "nginx is not installed"


def npm(folder: Path) -> Prepare:
    """Install the locked packages of a folder with a package.json."""

    def prepare() -> str:
        if not shutil.which("npm"):
            return "npm is not installed; the peer needs Node 20 or newer"
        # npm writes this file last, so an interrupted install is done again
        if (folder / "node_modules" / ".package-lock.json").exists():
            return ""
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        return _install(["npm", "ci", "--ignore-scripts", *quiet], folder)

    return prepare


def venv(folder: Path) -> Prepare:
    """Install the pinned requirements.txt of a folder into a .venv in it."""
    python, ready = venv_python(folder), folder / ".venv" / "ready"
    requirements = folder / "requirements.txt"

    def prepare() -> str:
        if ready.exists() and ready.stat().st_mtime >= requirements.stat().st_mtime:
            return ""
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        problem = _install([sys.executable, "-m", "venv", "--clear", ".venv"], folder)
        problem = problem or _install([*pip, "--requirement", requirements.name], folder)
        if not problem:
            ready.touch()
        return problem

    return prepare


def venv_python(folder: Path) -> str:
    """Return the interpreter that `venv` makes."""
    return str(folder / ".venv" / "bin" / "python")


def _install(command: Sequence[str], folder: Path) -> str:
    print(f"{folder.name}: {' '.join(command[1:4])} ...", flush=True)
    if subprocess.run(command, cwd=folder, check=False).returncode:
        return f"{' '.join(command[:3])} failed in {folder}"
    return ""
