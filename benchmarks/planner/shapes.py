"""The shapes of plans, for all targets alike: what is done before what, and the work itself.

Only the standard library is imported: peers run in environments of their own.
"""

from collections import Counter
from collections.abc import Sequence

WIDTH = 10
"""Tasks of a group, and of a layer."""

CONCURRENCY = 8
"""Tasks that work at the same time."""

SHAPES = {
    "flat": "tasks side by side",
    "nested": f"tasks, {WIDTH} below each of those at the top",
    "layers": f"tasks in layers of {WIDTH}, each of which needs one of the layer before",
    "agents": "tasks side by side, each of an agent whose model calls a tool, then answers",
}


def list_groups(tasks: int) -> Sequence[Sequence[str]]:
    """Return the names of that many tasks in groups, or in layers."""
    names = [f"t{number}" for number in range(tasks)]
    return [names[start : start + WIDTH] for start in range(0, tasks, WIDTH)]


class Effects:
    """The work of tasks, and the proof that each was done once."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()

    def have(self, name: str) -> str:
        """Do the work of a task, and return its output."""
        self._done[name] += 1
        return f"The outcome of {name}."

    def check(self, tasks: int, outputs: int) -> None:
        """Raise `RuntimeError` unless each of that many tasks was done once and has an output.

        Then begin anew, for the next plan.
        """
        if len(self._done) != tasks or set(self._done.values()) != {1} or outputs != tasks:
            raise RuntimeError(
                f"{len(self._done)} of {tasks} tasks were done, {self._done.total()} times, with "
                f"{outputs} outputs"
            )
        self._done.clear()
