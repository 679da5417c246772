"""Retrieved passages and attached files, which a model reads with a conversation."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from copilot_runtime.api.events import Activity
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import RunInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A retrieved text, with a link to its source."""

    id: str
    """The URI of its resource."""
    text: str
    title: str = ""
    url: str = ""
    """The URL at which users can open the source; empty if there is none."""
    score: float | None = None
    """Relevance; higher is better."""


class Retriever(Protocol):
    """Retrieves passages for the question of a run."""

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return passages for the last question of a run, the most relevant first.

        Return only passages that the caller may read. An exception is logged, and the run
        continues without passages.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMessages:
    """The messages of a conversation with files, as the model gets them."""

    messages: Sequence[Message]
    """The conversation, with a line of text in place of each ingested file."""
    passages: Sequence[Passage] = ()
    """The passages of those files that match the question."""


class FileReader(Protocol):
    """Ingests the files that users attach to their questions."""

    def read_files(self, run: RunInput) -> AsyncGenerator[Activity | PreparedMessages, None]:
        """Yield progress, and finally the prepared messages; nothing for a run without files."""
        ...


class FileStore(Protocol):
    """Stores the files of a request for an agent that reads them itself."""

    def has_files(self, run: RunInput) -> bool:
        """Return whether the request has files to store."""
        ...

    def store_files(self, run: RunInput) -> AsyncGenerator[Activity | PreparedMessages, None]:
        """Yield progress, and finally the prepared messages for the agent."""
        ...
