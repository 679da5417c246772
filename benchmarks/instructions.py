"""Count the instructions of our server for a short chat, and for one more chunk of a chat.

    .venv/bin/python -m benchmarks.instructions
    BENCH_BASE=../base .venv/bin/python -m benchmarks.instructions     # beside another commit

Callgrind counts them in user space, so the figures are the same on a busy machine. It needs
valgrind, and takes about four minutes.
"""

import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.streaming import load
from benchmarks.streaming.clients import AGUI, V1
from benchmarks.streaming.commands import HAS_BASE, serve_base, serve_ours
from benchmarks.streaming.load import Load
from benchmarks.streaming.servers import Mock, Server
from benchmarks.streaming.suite import Target

_PATH = "/copilotkit"
_WAYS = {
    "v1, from a model": (V1, _PATH),
    "AG-UI, from a model": (AGUI, f"{_PATH}/agent/default/run"),
    "AG-UI, from an agent": (AGUI, f"{_PATH}/agent/remote/run"),
}
"""Way of a chat → its client, and the path of its requests."""

_CHATS = 64
_STREAMS, _CHUNKS, _DELAY_MS = 2, 51, 200
_SHORT = Load(streams=4, chunks=1, requests=_CHATS, timeout_s=600)
# slow enough that no two chunks are read at once
_LONG = Load(streams=_STREAMS, chunks=_CHUNKS, delay_ms=_DELAY_MS, timeout_s=600)
# takes as long, because a second without chunks costs a few hundred thousand instructions, too
_LONG_PAUSE = Load(streams=_STREAMS, chunks=2, delay_ms=_DELAY_MS * (_CHUNKS - 1), timeout_s=600)
_COMMANDS = {"ours": serve_ours(_PATH), **({"base": serve_base(_PATH)} if HAS_BASE else {})}


@dataclass(frozen=True, slots=True)
class Counts:
    """Thousands of instructions of one server, for one way of a chat."""

    chat: float
    chunk: float


def main() -> None:
    """Print a table: thousands of instructions per chat and per chunk."""
    print(f"{'':24}{'server':8}{'k/chat':>10}{'k/chunk':>10}")
    with _running_mock() as mock:
        for way in _WAYS:
            for name in _COMMANDS:
                counts = _count(name, way, mock)
                print(f"{way:24}{name:8}{counts.chat:10.0f}{counts.chunk:10.1f}", flush=True)


@contextmanager
def _running_mock() -> Generator[Mock]:
    mock = Mock()
    try:
        mock.start()
        yield mock
    finally:
        mock.stop()


def _count(name: str, way: str, mock: Mock) -> Counts:
    client, path = _WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "callgrind.out")
        command = [
            *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--combine-dumps=yes"),
            *(f"--callgrind-out-file={output}", *_COMMANDS[name]),
        ]
        server = Server(name, Target(client, path, _after_env(command)), mock)
        try:
            server.start()
            load.run(_SHORT, server.destination)  # imports and caches
            short = _measure(server, _SHORT, output) / _CHATS
            many = _measure(server, _LONG, output) / _STREAMS
            two = _measure(server, _LONG_PAUSE, output) / _STREAMS
        finally:
            server.stop()
    return Counts(short / 1e3, (many - two) / (_CHUNKS - 2) / 1e3)


def _after_env(command: list[str]) -> list[str]:
    """Move valgrind behind `env -C FOLDER NAME=VALUE`, which replaces its own process."""
    start = command.index("env")
    return [*command[start : start + 4], *command[:start], *command[start + 4 :]]


def _measure(server: Server, chats: Load, output: Path) -> int:
    """Return the instructions of a load. Raises `RuntimeError` if a chat fails."""
    pid = str(server.destination.pid)
    for option in ("-z", "-i=on"):
        _control(option, pid)
    outcome = load.run(chats, server.destination)
    _control("-i=off", pid)
    output.unlink(missing_ok=True)
    _control("-d", pid)
    if outcome.problems:
        raise RuntimeError(f"{server.name}: {outcome.problems[0]}")
    lines = output.read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def _control(option: str, pid: str) -> None:
    subprocess.run(["callgrind_control", option, pid], check=True, capture_output=True)


if __name__ == "__main__":
    main()
