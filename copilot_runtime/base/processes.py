"""Worker processes with kernel limits, for work that could take all memory or never end."""

import mmap
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import resource

_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "TZ")
"""Environment variables that a worker inherits; none holds a key."""


def start_worker(file: Path, *arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a Python file of ours with our import path, but without our environment."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return subprocess.Popen[bytes](
        [sys.executable, "-P", str(file), *arguments],
        stderr=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        **options,
    )


def limit_process(
    *,
    memory: int | None = None,
    data: int | None = None,
    file_size: int | None = 0,
    open_files: int | None = 0,
) -> None:
    """Set kernel limits of this process for good, as far as its system has them.

    `memory` is the growth of its address space in bytes, `data` its private memory, which leaves
    out what threads only reserve. `open_files=0` refuses new files and sockets, and keeps those
    that are open. `None` sets no limit.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):  # if the machine has no memory left, this process ends first
        Path("/proc/self/oom_score_adj").write_text("1000")
    size = measure_memory()[0]
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_DATA: data,
        resource.RLIMIT_AS: size + memory if size and memory else None,
    }
    for limit, value in limits.items():
        if value is not None:
            with suppress(ValueError, OSError):  # some systems allow less
                resource.setrlimit(limit, (value, value))


def limit_cpu(seconds: float) -> None:
    """Let the kernel end this process after `seconds` more of CPU time; call it again for more."""
    if sys.platform != "win32":
        _set_soft_limit(resource.RLIMIT_CPU, int(time.process_time() + seconds) + 1)


def limit_file_size(folder: Path) -> None:
    """Let each file that this process writes take half of the disk that is free now."""
    if sys.platform != "win32":
        _set_soft_limit(resource.RLIMIT_FSIZE, shutil.disk_usage(folder).free // 2)


def _set_soft_limit(limit: int, value: int) -> None:
    with suppress(ValueError, OSError):
        resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))


def measure_memory(pid: int | str = "self") -> tuple[int, int]:
    """Return address space and resident memory of a process in bytes; zeros if not reported."""
    try:
        size, resident = Path(f"/proc/{pid}/statm").read_text().split()[:2]
    except (OSError, ValueError):
        return 0, 0
    return int(size) * mmap.PAGESIZE, int(resident) * mmap.PAGESIZE
