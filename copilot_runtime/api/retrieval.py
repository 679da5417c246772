"""What a model reads beside a conversation: passages, and the files of people."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that was found for a question, and where a reader can open its source."""

    id: str
    """The URI of the resource that has it."""
    text: str
    title: str = ""
    url: str = ""
    """Where a reader can open it, as far as that is possible."""
    score: float | None = None
    """How well it answers: higher is better."""


class Retriever(Protocol):
    """Finds what a model should read before it answers."""

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return passages for the last question of a run, the best first; none if none fits.

        Each is one that the caller of the run may read. What is raised is logged, and the run goes
        on without passages.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a model reads of a conversation with files."""

    messages: Sequence[Message]
    """The conversation, with a line of text in the place of each file that was taken in."""
    passages: Sequence[Passage] = ()
    """What those files say that fits the question."""


class FileReader(Protocol):
    """Takes in the files that people attach to their questions."""

    def read_files(self, run: RunInput) -> AsyncGenerator[Activity | Reading, None]:
        """Yield the progress, and at last what a model reads; nothing for a run without files."""
        ...


class FileStore(Protocol):
    """Takes in the files that come to an agent, which reads them itself."""

    def has_files(self, run: RunInput) -> bool:
        """Return whether there is anything to take in."""
        ...

    def store_files(self, run: RunInput) -> AsyncGenerator[Activity | Reading, None]:
        """Yield the progress, and at last the messages as the agent gets them."""
        ...
