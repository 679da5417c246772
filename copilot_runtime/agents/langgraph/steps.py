"""The nodes a LangGraph run is in, as steps: each once, however many branches are in it."""

from collections import Counter

from copilot_runtime.events import Event, StepFinished, StepStarted


class Steps:
    """Counts who has entered which node, and who is through."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._leaving: list[str] = []

    def enter(self, name: str) -> list[Event]:
        """Begin a node, after those that are through."""
        told = self.leave()
        self._open[name] += 1
        return told if self._open[name] > 1 else [*told, StepStarted(name=name)]

    def through(self, name: str) -> None:
        """Note that a node has ended. It is left later, so that its state is there."""
        self._leaving.append(name)

    def leave(self) -> list[Event]:
        """Leave the nodes that are through."""
        told: list[Event] = []
        for name in self._leaving:
            if not self._open[name]:
                continue
            self._open[name] -= 1
            if self._open[name] == 0:
                told.append(StepFinished(name=name))
        self._leaving.clear()
        return told

    def leave_all(self) -> list[Event]:
        """Leave every node: a question, and handing over to another graph, leave some open."""
        rest = Counter(self._open)
        rest.subtract(self._leaving)
        self._leaving += [*rest.elements()][::-1]
        return self.leave()
