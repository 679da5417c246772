"""Policies in Rego: files with `data.copilot.allow`, as Copilot-LD's design has them.

    package copilot
    import rego.v1

    default allow := false
    allow if {
        input.action in {"read", "list"}
        startswith(input.resource.uri, "common.Folder.handbook/")
    }
    deny if input.resource.type == "hr.Salary"      # also to owners

`input` has `actor` (name, groups, agent, conversation), `action` and `resource` (uri, type, name,
parent, path, owner); `path` is that of a file, also for the pieces of its text. A folder may have
several files, and a `data.json`.

A process of its own judges: some policies make regopy crash, and that must not end the server.
"""

import re
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from time import monotonic

from copilot_runtime.base.errors import CopilotError, MissingPackage
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_list, as_object, as_text
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies import rego_worker
from copilot_runtime.extensions.knowledge.policies.engine import (
    EnginePolicy,
    Verdict,
    describe_resource,
    read_json,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    PolicyProblem,
    PolicyUnreadable,
    find_files,
    read_text,
)

_PAUSE = 5.0
"""Seconds after a failure in which everything is denied, before a process is started again."""

_START_TIMEOUT = 60.0
"""Timeout in seconds of the start of a process, including compilation of the policy."""

_PACKAGE = re.compile(r"^\s*package\s+copilot\s*$", re.MULTILINE)
_REASON = re.compile(r"errormsg \d+:(.*?)\)\s", re.DOTALL)
_OFFSET = re.compile(r"\|(\d+)\|\d+")


class RegoFailed(CopilotError):
    """The worker process ended, timed out, or rejected the policy."""


class RegoPolicy(EnginePolicy):
    """Policies in Rego."""

    def __init__(
        self, modules: Mapping[str, str], data: JsonValue = None, *, timeout: float = 5.0
    ) -> None:
        super().__init__()
        if find_spec("regopy") is None:
            raise MissingPackage("A policy in Rego", "regopy", "rego")
        self._policy: JsonObject = {"modules": dict(modules), "data": data}
        self._timeout = timeout
        self._asking = Lock()
        self._pause_until = 0.0
        self._process: _Process | None = _Process(self._policy, timeout)

    @property
    def process_id(self) -> int:
        """The identifier of the worker process; 0 while there is none."""
        return self._process.id if self._process else 0

    @classmethod
    def read(cls, path: Path) -> "RegoPolicy":
        """Read a file or a folder. Raises `PolicyUnreadable`, `MissingPackage`."""
        files = {file.name: file for file in find_files(path, ".rego")}
        modules = {name: read_text(file) for name, file in files.items()}
        data = read_json(path / "data.json") if path.is_dir() else None
        if data is not None and not isinstance(data, dict):
            raise PolicyUnreadable(path / "data.json", [PolicyProblem("expected an object")])
        if not any(_PACKAGE.search(text) for text in modules.values()):
            problem = PolicyProblem(
                "nothing is in 'package copilot', where the rule 'allow' has to be"
            )
            raise PolicyUnreadable(path, [problem])
        try:
            return cls(modules, data)
        except RegoRefused as error:
            file = files.get(error.file, path)
            problem = _locate(error.message, modules.get(error.file, ""))
            raise PolicyUnreadable(file, [problem]) from error
        except RegoFailed as error:
            raise PolicyUnreadable(path, [PolicyProblem(error.message)]) from error

    def ask(self, actor: Actor, action: AccessAction, uris: Sequence[str]) -> Sequence[Verdict]:
        question: JsonObject = {
            "actor": {
                "name": actor.name,
                "groups": [*sorted(actor.groups)],
                "agent": actor.agent,
                "conversation": actor.conversation,
            },
            "action": action,
            "resources": [{**describe_resource(uri)} for uri in uris],
        }
        with self._asking:
            if monotonic() < self._pause_until:
                raise RegoFailed("It failed before, and is begun again in some seconds.")
            try:
                self._process = self._process or _Process(self._policy, self._timeout)
                answers = self._process.ask(question)
            except BaseException:
                self._end()
                self._pause_until = monotonic() + _PAUSE
                raise
        return [*map(_read_answer, as_list(answers))]

    def find_warnings(self) -> Sequence[PolicyProblem]:
        texts = as_object(self._policy["modules"]).values()
        if any("allow" in as_text(text) for text in texts):
            return ()
        return [PolicyProblem("there is no rule 'allow': everything is denied, but to owners")]

    def close(self) -> None:
        with self._asking:
            self._end()
            self._pause_until = float("inf")

    def _end(self) -> None:
        if self._process:
            self._process.close()
            self._process = None


class _Process:
    """A worker process with a policy. Raises `RegoFailed` once it stops responding."""

    def __init__(self, policy: JsonObject, timeout: float) -> None:
        self._timeout = timeout
        self._pipe = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", rego_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.id = self._pipe.pid
        self.close = weakref.finalize(self, _kill, self._pipe)
        reply = as_object(self._send(policy, _START_TIMEOUT))
        if error := as_text(reply.get("error")):
            self.close()
            raise RegoRefused(error, as_text(reply.get("file")))

    def ask(self, question: JsonObject) -> JsonValue:
        """Return the answers to a question."""
        return self._send(question, self._timeout)

    def _send(self, message: JsonObject, timeout: float) -> JsonValue:
        """Send a line, and return the one that comes back."""
        assert self._pipe.stdin
        assert self._pipe.stdout
        deadline = monotonic() + timeout
        timer = Timer(timeout, self._pipe.kill)
        timer.start()
        try:
            self._pipe.stdin.write(dumps(message) + b"\n")
            self._pipe.stdin.flush()
            line = self._pipe.stdout.readline()
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if line:
            return loads(line)
        status = self._pipe.wait()
        self.close()
        late = f"did not answer within {timeout:g} s" if monotonic() >= deadline else ""
        raise RegoFailed(f"The process that judges {late or f'ended with status {status}'}.")


class RegoRefused(RegoFailed):
    """A policy cannot be compiled."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with suppress(BrokenPipeError), process:  # closes the pipes and waits
        pass


def _read_answer(answer: JsonValue) -> Verdict:
    """Convert the values of `allow` and `deny` to a verdict; undefined values are ignored."""
    if error := as_text(as_object(answer).get("error")):
        return Verdict(errors=(error,))
    values = as_list(answer)
    for name, value in zip(("allow", "deny"), values, strict=False):
        if not isinstance(value, bool | None):
            return Verdict(errors=(f"data.copilot.{name} is no boolean, but {value!r}"[:200],))
    allow, deny = (*values, None)[:2]
    named = [f"data.copilot.{name}" for name, it in (("deny", deny), ("allow", allow)) if it]
    return Verdict(permits=allow is True, forbids=deny is True, rules=named[:1])


def _locate(message: str, text: str) -> PolicyProblem:
    """Return an error of regopy with line and column, computed from its offset."""
    reason = _REASON.search(message)
    offset = _OFFSET.search(message)
    before = text.encode()[: int(offset[1])].decode(errors="replace") if offset else ""
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    sentence = f"not Rego: {reason[1] if reason else message[:200]}"
    return PolicyProblem(sentence, line, column) if offset else PolicyProblem(sentence)
