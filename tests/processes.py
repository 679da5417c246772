"""Programs that tests start. Each leads a process group, and the whole group ends with its block.

A program is ended however its test ends, and what it prints is read all the time, so that no pipe
fills up. Who waits for a program waits as long as pytest lets a test run.
"""

import os
import pty
import re
import signal
import subprocess
from codecs import getincrementaldecoder
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Thread

Command = Sequence[str | Path]

_GRACE = 20.0
"""Seconds for a program that is to end in order; after that it is killed."""


class Output:
    """What comes out of a pipe or a terminal, read by a thread as soon as it comes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pieces: list[str] = []
        self._unmatched = ""
        self._ended = False
        self._changed = Condition()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def until(self, pattern: str) -> re.Match[str]:
        """Wait for a pattern and return the match. The next call looks behind it."""
        with self._changed:
            while (match := re.search(pattern, self._unmatched, re.MULTILINE)) is None:
                assert not self._ended, f"It ended without {pattern!r}:\n{self._unmatched}"
                self._changed.wait()
            self._unmatched = self._unmatched[match.end() :]
        return match

    def text(self) -> str:
        """Wait for the end and return everything."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended)
            return "".join(self._pieces)

    def _read(self) -> None:
        decoder = getincrementaldecoder("utf-8")("replace")
        with suppress(OSError):  # Linux reports the end of a terminal as an error
            while piece := os.read(self._descriptor, 65536):
                text = decoder.decode(piece)
                with self._changed:
                    self._pieces.append(text)
                    self._unmatched += text
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait for the end, but not for a program that escaped and keeps the pipe open."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, _GRACE)


class Program:
    """A program under way."""

    def __init__(self, process: subprocess.Popen[bytes], output: Output, errors: Output) -> None:
        self.process = process
        self.output = output
        self.errors = errors

    def until(self, pattern: str) -> re.Match[str]:
        """Wait until it prints something; fail with its errors if it ends before."""
        try:
            return self.output.until(pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.errors.text()}") from None

    def write(self, data: bytes) -> None:
        """Write to its standard input, which must be a pipe."""
        assert self.process.stdin
        self.process.stdin.write(data)

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        return self.process.wait()

    def end(self) -> None:
        """Let the program end in order, and kill it if it does not."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        """Kill the program and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(
    command: Command,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Generator[Program]:
    """Run a program for the length of a block."""
    with subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=pass_fds,
        start_new_session=True,
    ) as process:
        assert process.stdout and process.stderr
        output, errors = Output(process.stdout.fileno()), Output(process.stderr.fileno())
        program = Program(process, output, errors)
        try:
            yield program
        finally:
            program.kill()
            output.drain()
            errors.drain()


def finished(
    command: Command,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end, and return what it printed."""
    with running(command, cwd=cwd, env=env, stdin=subprocess.PIPE) as program:
        assert program.process.stdin
        with suppress(BrokenPipeError), program.process.stdin as stdin:
            stdin.write(given.encode())
        output, errors = program.output.text(), program.errors.text()
        return subprocess.CompletedProcess(command, program.wait(), output, errors)


@contextmanager
def in_terminal(
    command: Command, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Generator[tuple[Program, int]]:
    """Run a program in a terminal; yield it, and the terminal to type into."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        ) as process:
            os.close(slave)
            screen = Output(master)
            program = Program(process, screen, screen)
            try:
                yield program, master
            finally:
                program.kill()
                screen.drain()
    finally:
        os.close(master)
