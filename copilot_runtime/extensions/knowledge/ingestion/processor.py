"""Process many items in batches, isolating failures; read the files of an ingestion."""

import asyncio
import hashlib
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar
from urllib.parse import quote, urljoin

from pyoxigraph import Literal

from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.identifiers import (
    CHUNK,
    THING,
    Identifier,
    hash_values,
    identify_file,
)
from copilot_runtime.extensions.knowledge.ingestion.documents import (
    HTML,
    UnsupportedType,
    detect_media_type,
    read_document,
    read_html_text,
)
from copilot_runtime.extensions.knowledge.ingestion.journal import (
    Contribution,
    IngestionJournal,
    IngestionLock,
    IngestReport,
    SourceEntry,
)
from copilot_runtime.extensions.knowledge.ingestion.sources import Source
from copilot_runtime.extensions.knowledge.rdf.page import LONG, SHORT, read_page
from copilot_runtime.extensions.knowledge.resources import ContentFormat

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_VERSION = "11"
"""Version of the readers; a new one makes all files be read again."""
_DOCUMENTS = (
    *(".html", ".htm", ".xhtml", ".md", ".markdown", ".txt", ".csv", ".tsv", ".pdf", ".rtf"),
    *(".doc", ".docx", ".docm", ".xls", ".xlsx", ".xlsm", ".ppt", ".pptx", ".odt", ".ods", ".odp"),
    *(".eml", ".mht", ".mhtml"),
)
"""Suffixes of files in which people expect a text; other files may be skipped."""
_LARGE = 1024 * 1024
"""Bytes above which a text is read in another process: a long line would stop this one."""
READ_BATCH = 16
"""Number of files read at the same time."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """The results of processing items."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Readable reasons by item name."""


class Processor(ABC, Generic[Item]):
    """Discovers items and processes each of them.

    The items of a batch are processed at the same time, and one batch after the other. What
    `process_item` raises is written to the log and into the report; all others go on.
    """

    batch_size = 10

    @abstractmethod
    async def discover(self) -> Iterable[Item]:
        """Return the items to process."""

    @abstractmethod
    async def process_item(self, item: Item) -> None:
        """Process one item."""

    async def finish_batch(self, items: Sequence[Item]) -> None:
        """Finish a batch, for example write it. An exception ends the processing."""

    def name_item(self, item: Item) -> str:
        """Return the name of an item in reports."""
        return str(item)

    async def process(
        self,
        items: Iterable[Item] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ProcessReport:
        """Process items, by default those that `discover` returns.

        `progress` is called with the number of items that are done and the number of all.
        """
        if self.batch_size < 1:
            raise Misuse(f"A batch cannot have {self.batch_size} items.")
        waiting = [*(await self.discover() if items is None else items)]
        failed: dict[str, str] = {}
        done = 0
        for batch in split_batches(waiting, self.batch_size):
            results = await asyncio.gather(*map(self._attempt, batch))
            for item, reason in zip(batch, results, strict=True):
                if reason:
                    failed[self.name_item(item)] = reason
            await self.finish_batch(batch)
            done += len(batch)
            if progress:
                progress(done, len(waiting))
        return ProcessReport(len(waiting) - len(failed), failed)

    async def _attempt(self, item: Item) -> str:
        """Process an item, and return its error, or an empty string."""
        try:
            await self.process_item(item)
        except CopilotError as error:
            logger.warning("%s: %s", self.name_item(item), error.message)
            return error.message
        except Exception as error:  # an item may be anything, and the others need not suffer
            logger.exception("%s could not be processed", self.name_item(item))
            return f"{type(error).__name__}: {error}"
        return ""


@dataclass(frozen=True, slots=True)
class ItemForm:
    """The form in which things of pages are stored as resources."""

    format: ContentFormat = "jsonld"
    digits: int = LONG
    """Number of hash digits in the names of resources and blank nodes."""
    described: bool = True
    """Whether the resource has the title of the thing and its main source file."""
    has_text: bool = True
    """Whether the text beside the annotations of a page is stored as well."""
    by_file: bool = False
    """Whether each file has a resource of its own of a thing, so that rules can hide the file.

    If not, the statements of all files about a thing are merged into one resource.
    """


JSONLD_FORM = ItemForm()
COPILOT_LD_FORM = ItemForm("turtle", SHORT, described=False, has_text=False)
"""As Copilot-LD stores them: of 100,000 things, two have the same name."""


class SourceReader(Processor[Source]):
    """Reads new and changed files, and records their contributions in the journal."""

    batch_size = READ_BATCH
    lock: IngestionLock | None = None
    """The ingestion lock; without it, nothing is written."""

    def __init__(
        self,
        journal: IngestionJournal,
        report: IngestReport,
        base: str,
        form: ItemForm,
        files: set[str],
    ) -> None:
        self._journal = journal
        self._report = report
        self._base = base
        self._form = form
        self._files = files
        self._read: dict[str, tuple[SourceEntry, Contribution]] = {}
        self._slots = asyncio.Semaphore(max(1, _count_processors() // 2))

    async def discover(self) -> Iterable[Source]:
        return ()

    def name_item(self, item: Source) -> str:
        return item.name

    async def process_item(self, item: Source) -> None:
        before = self._journal.sources.get(item.name)
        try:
            async with self._slots:  # the rest of the server goes on meanwhile
                reading: tuple[SourceEntry, Contribution] | None = await call(
                    read_source, item, self._base, self._form, before and before.hash
                )
        except UnsupportedType as error:
            if item.name in self._files or item.name.lower().endswith(_DOCUMENTS):
                self._note_failure(item, error)
            else:
                self._report.skipped[item.name] = error.media_type
            return
        except CopilotError as error:
            self._note_failure(item, error)
            return
        except Exception as error:
            self._report.failed[item.name] = f"{type(error).__name__}: {error}"
            raise
        if reading is None:
            self._report.unchanged += 1
            return
        (self._report.changed if before else self._report.new).append(item.name)
        entry, _ = self._read[item.name] = reading
        if not entry.parts:
            self._report.empty.append(item.name)
        if entry.warnings:
            self._report.warnings[item.name] = [*entry.warnings]
            logger.warning("%s: %s", item.name, " ".join(entry.warnings))

    def _note_failure(self, item: Source, error: CopilotError) -> None:
        reason = " ".join(filter(None, (error.message, error.hint)))
        self._report.failed[item.name] = reason
        logger.warning("%s: %s", item.name, reason)

    async def finish_batch(self, items: Sequence[Source]) -> None:
        if self.lock:
            self.lock.check()
            await self._journal.write(
                self._read[item.name] for item in items if item.name in self._read
            )
        self._read.clear()


def read_source(
    source: Source, base: str, form: ItemForm, before: str | None = None
) -> tuple[SourceEntry, Contribution] | None:
    """Return the entry and the contribution of a file; `None` if its hash equals `before`."""
    data = source.read()
    iri = urljoin(base, quote(source.address))
    form_text = str(form)
    settings = f"{_VERSION}\n{iri}\n{form_text}"
    digest = hashlib.sha256(data + settings.encode()).hexdigest()
    if digest == before:
        return None
    contribution, warnings = _read_contribution(data, source, iri, form)
    parts = {
        identify_item(iri, form, source.name): hash_values(form_text, lines, length=16)
        for iri, lines in contribution.items.items()
    }
    for uri, chunk in contribution.chunks.items():
        parts[uri] = hash_values(str(chunk), contribution.title, length=16)
    record = hash_values(source.name, digest)
    at = int(time.time())
    entry = SourceEntry(source.name, digest, source.address, record, parts, warnings, at)
    return entry, contribution


def _read_contribution(
    data: bytes, source: Source, iri: str, form: ItemForm
) -> tuple[Contribution, list[str]]:
    items: dict[str, str] = {}
    if detect_media_type(data, source.name) == HTML:
        page = read_page(data, iri, form.digits)
        items = {
            name: "\n".join(f"<{name}> {predicate} {value} ." for _, predicate, value in statements)
            for name, statements in page.items.items()
        }
        texts: list[str] | None = None
        if page.annotated:  # annotations beside the text in a script need not say what it says
            values = (value for _, _, value in chain.from_iterable(page.items.values()))
            texts = [value.value for value in values if isinstance(value, Literal)]
        root = None if page.annotated and not form.has_text else page.root
        document = read_html_text(root, page.hidden, page.warnings, texts)
    else:
        document = read_document(data, source.name, sandboxed=len(data) > _LARGE)
    parent = str(identify_file(source.name))
    chunks: dict[str, JsonObject] = {}
    for chunk in document.chunks:
        id = Identifier(CHUNK, hash_values(chunk.text), parent)
        value: JsonObject = {"text": chunk.text, "place": chunk.place.encode(), "iri": iri}
        chunks.setdefault(str(id), value)
    title = document.title or source.path.name
    return Contribution(title, document.media_type, items, chunks), document.warnings


def identify_item(iri: str, form: ItemForm, file: str) -> str:
    """Return the URI of the resource of a thing in a file, as `Source.name` has it."""
    name = f"{THING}.{hash_values(iri, length=form.digits)}"
    return f"{identify_file(file)}/{name}" if form.by_file else name


def _count_processors() -> int:
    """Return the number of processors available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
