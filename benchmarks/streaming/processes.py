"""Start a command with everything it forks, look at what it costs, and end it."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GRACE_S = 4


class Process:
    """A command in a process group of its own, with a folder that goes when it goes."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, own_session: bool = True
    ) -> None:
        # Linux may share the CPU between sessions: who is in which changes what is measured
        self._own_session = own_session
        self._command = command
        self._env = env
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._log = Path(self._folder.name, "log")
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._popen is not None, "not started"
        return self._popen.pid

    def start(self) -> None:
        """Run the command in the root of the repository; TARGET_DIR is its folder."""
        with self._log.open("wb") as log:
            self._popen = subprocess.Popen(
                self._command,
                env={**os.environ, "TARGET_DIR": self._folder.name, **self._env},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=self._own_session,
                process_group=None if self._own_session else 0,
                cwd=REPOSITORY,
            )

    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def log_tail(self) -> str:
        """Return the last lines the command printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])

    def stop(self) -> None:
        """End the whole group, politely first. May be called twice."""
        popen, self._popen = self._popen, None
        if popen is not None:
            _signal_group(popen.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(_GRACE_S)
            _signal_group(popen.pid, signal.SIGKILL)
            popen.wait()
        self._folder.cleanup()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(_after_name(stat)[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Sum user and system CPU in seconds, in steps of 10 ms. Processes that are gone count 0."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _after_name(Path(f"/proc/{pid}/stat"))
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def rss_mb(pids: Sequence[int]) -> float:
    """Sum resident memory in MB (10^6 bytes); shared pages count once per process."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE_BYTES / 1e6


def _after_name(stat: Path) -> list[str]:
    # the name, second field, may itself contain spaces and brackets
    return stat.read_text().rsplit(")", 1)[1].split()
