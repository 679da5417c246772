"""A policy in a file or a folder, reloaded when it changes."""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from time import monotonic, time

from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.outages import log_failures
from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.policy import (
    Decision,
    Explanation,
    Policy,
    PolicyProblem,
    PolicyUnreadable,
)

logger = logging.getLogger(__name__)

POLICIES = {
    "cedar": "copilot_runtime.extensions.knowledge.policies.cedar:CedarPolicy.read",
    "rego": "copilot_runtime.extensions.knowledge.policies.rego:RegoPolicy.read",
    "yaml": "copilot_runtime.extensions.knowledge.policies.document:read_rules",
    "yml": "copilot_runtime.extensions.knowledge.policies.document:read_rules",
}
"""Readers of policies, by file extension."""

LOOK_EVERY = 0.5
"""Seconds between two checks of the file."""

SETTLED_AFTER = 1.0
"""Seconds after the last modification until a file counts as completely written."""

ReadPolicy = Callable[[Path], Policy]
Signature = Sequence[tuple[str, int, bytes]]


def load_policy(path: str | Path) -> "PolicyFile":
    """Return the policy of a file, or of a folder of files, by its extension.

    Raises `ConfigurationFailed` for one that is not there, or not valid.
    """
    path = Path(path)
    return PolicyFile(path, _find_reader(path))


class PolicyFile(Policy):
    """Decides by the current version of the file.

    Who asks looks first, when the last look is some time ago, so a decision is never older than
    what the file said a moment before. To look may take long, so it is never done on an event loop:
    an access says by `immediate` when it needs no look. A new version is taken once it has stayed
    the same between two looks, or for a second as its time says: a partial write is never taken.
    One that is broken changes nothing, and the log says so.
    """

    def __init__(
        self,
        path: Path,
        read: ReadPolicy,
        *,
        clock: Callable[[], float] = monotonic,
        now: Callable[[], float] = time,
    ) -> None:
        """Read a policy. `now` is the time that files are stamped with."""
        self.path = path
        self._read = read
        self._clock = clock
        self._now = now
        self._lock = Lock()
        self._next_look = clock() + LOOK_EVERY
        self._signature = self._latest = _sign(path)
        self._policy = _read_policy(read, path)

    @property
    def generation(self) -> Hashable:
        policy = self.refresh()
        return policy, policy.generation

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        return self.refresh().decide(actor, action, uri)

    def judge(self, actor: Actor, action: AccessAction, uris: Iterable[str]) -> list[bool]:
        return self.refresh().judge(actor, action, uris)

    def access(self, actor: Actor, action: AccessAction) -> Access:
        return _FileAccess(self, actor, action)

    def explain(self, actor: Actor, action: AccessAction, uri: str) -> Explanation:
        return self.refresh().explain(actor, action, uri)

    def find_warnings(self) -> Sequence[PolicyProblem]:
        return self.refresh().find_warnings()

    def find_idle_rules(self, uris: Collection[str]) -> Sequence[PolicyProblem]:
        return self.refresh().find_idle_rules(uris)

    def close(self) -> None:
        self._policy.close()

    @property
    def latest(self) -> Policy | None:
        """The current policy if no check of the file is due, else `None`."""
        return self._policy if self._clock() < self._next_look else None

    def refresh(self) -> Policy:
        """Return the current policy, after checking and perhaps reloading the file."""
        if self.latest is None:
            with self._lock:  # concurrent callers wait for the result of one check
                if self.latest is None:
                    try:
                        self._look()
                    finally:
                        self._next_look = self._clock() + LOOK_EVERY
        return self._policy

    def _look(self) -> None:
        earlier, self._latest = self._latest, _sign(self.path)
        if self._latest == self._signature:
            return
        if self._latest != earlier and not self._is_settled():
            return
        self._signature = self._latest
        try:
            policy = _read_policy(self._read, self.path)
        except CopilotError as error:
            logger.error(
                "The policy has changed and is not valid, so the rules of before apply. %s", error
            )
            return
        before, self._policy = self._policy, policy
        with log_failures(logger, "The previous policy could not be closed"):
            before.close()
        logger.info("The policy %s has changed and applies.", self.path)
        with log_failures(logger, "The warnings about the policy could not be found"):
            for problem in policy.find_warnings():
                logger.warning("%s", problem.describe("The policy"))

    def _is_settled(self) -> bool:
        """Return `True` if the last modification is long enough ago for a complete write."""
        written = max((stamp for _, stamp, _ in self._latest), default=None)
        return written is not None and abs(self._now() - written / 1e9) > SETTLED_AFTER


class _FileAccess(Access):
    """An access that follows reloads of the file."""

    def __init__(self, file: PolicyFile, actor: Actor, action: AccessAction) -> None:
        self._file = file
        self._actor = actor
        self._action: AccessAction = action

    @property
    def key(self) -> Hashable:
        return self._open(self._file.refresh()).key

    @property
    def immediate(self) -> Access | None:
        policy = self._file.latest
        return policy and self._open(policy).immediate

    def allows(self, uri: str) -> bool:
        return self._open(self._file.refresh()).allows(uri)

    def judge(self, uris: Iterable[str]) -> list[bool]:
        return self._open(self._file.refresh()).judge(uris)

    def _open(self, policy: Policy) -> Access:
        return policy.access(self._actor, self._action)


def _read_policy(read: ReadPolicy, path: Path) -> Policy:
    """Read a policy. Any error of a reader, also of a plugin, becomes a `CopilotError`."""
    try:
        return read(path)
    except (CopilotError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no `Exception`
        problem = PolicyProblem(f"what reads it failed: {error!r}")
        raise PolicyUnreadable(path, [problem]) from error


def _find_reader(path: Path) -> ReadPolicy:
    readers = Registry("copilot_runtime.policies", POLICIES, noun="kind of policy")
    if not path.exists():
        raise ConfigurationFailed(
            f"There is no policy {str(path)!r}.",
            hint="Set knowledge.policy to a .yml, .cedar or .rego file, or to a folder of them.",
        )
    files = [*path.iterdir()] if path.is_dir() else [path]
    suffixes = sorted({file.suffix.removeprefix(".") for file in files} & {*readers})
    if len(suffixes) == 1:
        return readers[suffixes[0]]
    found = f"files of several kinds: {', '.join(suffixes)}" if suffixes else "no rules"
    kinds = ", ".join(f".{suffix}" for suffix in readers)
    raise ConfigurationFailed(
        f"The policy {str(path)!r} has {found}.", hint=f"The kinds of policies are {kinds}."
    )


def _sign(path: Path) -> Signature:
    """Return a signature that changes with the files of a policy, and with their contents.

    A copy may have the time and the size of the file that it replaces.
    """
    try:
        files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
        return [(file.name, file.stat().st_mtime_ns, _hash(file)) for file in files]
    except OSError:
        return ()


def _hash(file: Path) -> bytes:
    """Return the hash of a file; of a folder, or of what cannot be read, an empty one."""
    with suppress(PermissionError):
        return sha256(file.read_bytes()).digest() if file.is_file() else b""
    return b""
