"""Give each process a part of a core, so that several have cores of their own on a small machine.

A control group of Linux does it: https://docs.kernel.org/scheduler/sched-bwc.html
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_V1 = Path("/sys/fs/cgroup/cpu")
_V2 = Path("/sys/fs/cgroup")
_PERIOD_US = 5000
"""Short, so that a process that has used its part waits for less than a chunk takes anyway."""


@contextmanager
def limiting_cpu(pids: Sequence[int], share: float) -> Generator[None]:
    """Let each of these processes use a share of a core: 0.25 is a core four times as slow.

    Raises `OSError` where control groups cannot be made.
    """
    with ExitStack() as stack:
        for pid in pids:
            stack.enter_context(_limiting(pid, round(share * _PERIOD_US)))
        yield


@contextmanager
def _limiting(pid: int, quota_us: int) -> Generator[None]:
    root = _V1 if _V1.is_dir() else _V2
    group = root / f"copilot-bench-{os.getpid()}-{pid}"
    group.mkdir()
    try:
        if root is _V1:
            (group / "cpu.cfs_period_us").write_text(f"{_PERIOD_US}")
            (group / "cpu.cfs_quota_us").write_text(f"{quota_us}")
        else:
            (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        _move(pid, group)
        yield
    finally:
        _move(pid, root)
        group.rmdir()


def _move(pid: int, group: Path) -> None:
    """Put a process into a control group, with all of its threads."""
    with suppress(ProcessLookupError):  # it has ended
        (group / "cgroup.procs").write_text(f"{pid}")
