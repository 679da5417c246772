"""Find the files that changed since they were read, by comparing what their folders say of them.

The operating system notifies nobody of changes in folders of other machines, so the folders are
looked at again and again. The files themselves are not opened.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from copilot_runtime.base.errors import NotFound
from copilot_runtime.extensions.knowledge.ingestion.sources import discover_sources

State = tuple[int | str, ...]
"""Times in nanoseconds, size and inode of a file; or why a file or a folder cannot be read."""


class SourceWatcher:
    """Compares the files of paths, folders and patterns with those that were last taken in.

    A change is settled if two looks in a row find the same. So a file that is being written is read
    once, when it is complete, and one that is saved under another name first does not seem deleted.

    `excluded` is the folder of the storage.
    """

    def __init__(self, paths: Sequence[str | Path], excluded: Path | None) -> None:
        self._paths = paths
        self._excluded = excluded
        self._taken: Mapping[str, State] = {}
        self._last: Mapping[str, State] = {}

    def look(self) -> set[str]:
        """Return the names of the files and folders with a settled change. It blocks."""
        before, self._last = self._last, self._find_states()
        states, found = self._taken, self._last
        return {
            name
            for name in states.keys() | found.keys()
            if states.get(name) != found.get(name) == before.get(name)
        }

    def mark(self, names: Iterable[str]) -> None:
        """Note that files were taken in as the last look found them."""
        states = {name: self._last.get(name) for name in names}
        self._taken = {name: it for name, it in {**self._taken, **states}.items() if it}

    def mark_all(self) -> None:
        """Look, and note that all files will be taken in as they are. It blocks."""
        self.look()
        self._taken = self._last

    def _find_states(self) -> Mapping[str, State]:
        addresses = dict.fromkeys(self._taken, "")
        try:
            discovery = discover_sources(self._paths, addresses, self._excluded)
        except NotFound:  # of what was never there, the update has warned
            return self._taken
        states: dict[str, State] = {name: (why,) for name, why in discovery.unreadable.items()}
        for name, source in discovery.sources.items():
            try:
                stat = source.path.stat()
            except OSError as error:  # also of a link to nothing, which can still be deleted
                states[name] = (str(error.strerror),)
            else:
                states[name] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
        for name, state in self._taken.items():
            if name not in states and not discovery.covers(name):  # its folder is unreadable
                states[name] = state
        return states
