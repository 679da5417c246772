"""The nodes of a LangGraph run as steps: one for each node, however many branches are in it."""

from collections import Counter

from copilot_runtime.api.events import Event, StepFinished, StepStarted


class StepTracker:
    """Counts the branches in each node."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._leaving: list[str] = []

    def enter(self, name: str) -> list[Event]:
        """Start a node; finish those that have ended before it."""
        events = self.leave()
        self._open[name] += 1
        return events if self._open[name] > 1 else [*events, StepStarted(name=name)]

    def finish(self, name: str) -> None:
        """Mark a node as ended. Its step ends later, when its state has come."""
        self._leaving.append(name)

    def leave(self) -> list[Event]:
        """End the steps of the nodes that have ended."""
        events: list[Event] = []
        for name in self._leaving:
            if not self._open[name]:
                continue
            self._open[name] -= 1
            if self._open[name] == 0:
                events.append(StepFinished(name=name))
        self._leaving.clear()
        return events

    def leave_all(self) -> list[Event]:
        """End all steps: interrupts and hand-offs to another graph leave some open."""
        rest = Counter(self._open)
        rest.subtract(self._leaving)
        self._leaving += [*rest.elements()][::-1]
        return self.leave()
