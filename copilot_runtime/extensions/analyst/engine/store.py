"""The folder of the engine: database files, their manifest, and a lock."""

import contextlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.engine.datasets import Dataset, quote_name
from copilot_runtime.extensions.analyst.engine.errors import DatasetRefused
from copilot_runtime.extensions.analyst.results import Column

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

try:
    import fcntl
except ImportError:  # Windows: one process
    fcntl = None

logger = logging.getLogger(__name__)

MANIFEST = "datasets.json"
LOCK = "lock"
VERSION = 1

MOST_SAVED = 200
"""Maximum number of saved data sets of all users together."""

MOST_OF_ONE = 20
"""Maximum number of saved data sets per user."""


LOSS = (
    "The server's data folder was deleted while it runs. Open data sets can be queried until "
    "the server is restarted: then the sources are copied again."
)
"""The error message after the folder was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table in a file."""

    name: str
    table: str
    """The table's name in the database file."""
    row_count: int
    columns: Sequence[Column]
    schema: str = "main"
    first_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """The types of its columns when they were first seen, by lower-case name."""
    notes: Sequence[str] = ()
    """Sentences about doubtful choices of its rows and types."""
    totals: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Column of texts → the labels in it of rows that add up others."""
    origins: Sequence[str] = field(default_factory=list[str])
    """The names of the file and the sheet that it comes from."""

    def follow(self, before: "StoredTable | None") -> "StoredTable":
        """Return a copy with the first types of the replaced table."""
        types = {column.name.lower(): column.type for column in self.columns}
        if before is not None:
            types |= {column.name.lower(): column.type for column in before.columns}
            types |= before.first_types
        return replace(self, first_types=types)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """A database file with the tables of one source, or with one saved data set."""

    alias: str
    """Its permanent name in the sandbox, which is never reused."""
    source: str
    file: str
    """File name in the folder; with `is_foreign`, a path of the operator's."""
    fingerprint: str
    tables: Sequence[StoredTable]
    is_foreign: bool = False
    description: str = ""
    tags: Sequence[str] = ()
    owner: str | None = None
    created_at: str = ""
    for_operators: bool = False

    @property
    def is_saved(self) -> bool:
        """`True` if it was saved by a question."""
        return self.owner is not None

    def list_datasets(self) -> Sequence[Dataset]:
        """Return its tables as data sets."""
        return [
            Dataset(
                name=table.name,
                physical=".".join(map(quote_name, (self.alias, table.schema, table.table))),
                source=self.source,
                row_count=table.row_count,
                columns=table.columns,
                version=f"{self.file}:{self.fingerprint}",
                description=" ".join([self.description, *table.notes]).strip(),
                tags=self.tags,
                owner=self.owner,
                created_at=self.created_at,
                for_operators=self.for_operators,
                first_types=table.first_types,
                totals=table.totals,
                origins=table.origins,
            )
            for table in self.tables
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The list of all database files in the folder."""

    entries: Sequence[ManifestEntry] = ()
    next_alias: int = 1
    is_whole: bool = True
    """`False` until all sources have been copied for the first time."""

    def find(self, source: str, owner: str | None = None) -> ManifestEntry | None:
        """Return the entry of a source, or of a data set that `owner` saved."""
        key = (source, owner)
        return next((one for one in self.entries if (one.source, one.owner) == key), None)

    def add(self, entry: ManifestEntry) -> "Manifest":
        """Return a manifest with an entry added, or replacing the entry with the same alias."""
        others = [one for one in self.entries if one.alias != entry.alias]
        number = max(self.next_alias, int(entry.alias[1:]) + 1)
        return replace(self, entries=[*others, entry], next_alias=number)

    def require_room(self, owner: str) -> None:
        """Raise `DatasetRefused` if an owner may not save another data set."""
        owners = [one.owner for one in self.entries if one.is_saved]
        if owners.count(owner) >= MOST_OF_ONE:
            raise DatasetRefused(
                f"You have saved {MOST_OF_ONE} data sets already, which is as many as you can.",
                hint="Replace a data set that you no longer need by using its name, or delete one: "
                "`DELETE analyst/datasets/NAME`.",
            )
        if len(owners) >= MOST_SAVED:
            raise DatasetRefused(
                f"{MOST_SAVED} data sets are saved here already, by all users together.",
                hint="Save under the name of one of yours, which replaces it, or delete one: "
                "`DELETE analyst/datasets/NAME`.",
            )

    def remove(self, entry: ManifestEntry) -> "Manifest":
        """Return a manifest without an entry; its alias is not reused."""
        return replace(self, entries=[one for one in self.entries if one.alias != entry.alias])


@dataclass(slots=True)
class Store:
    """The folder. Only the process that holds the lock writes to it."""

    folder: Path
    _descriptor: int | None = field(default=None)
    _is_readonly: bool = field(default=False)

    def open(self) -> None:
        """Create the folder, and take the lock unless another process holds it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationFailed(
                f"The analyst cannot keep its data in {str(self.folder)!r}: {error.strerror}.",
                hint="Change the setting `analyst.store`.",
                public="The analyst cannot keep its data.",
            ) from error
        self.take_lock()

    @property
    def is_writer(self) -> bool:
        """`True` if this process may write."""
        return self._descriptor is not None

    @property
    def is_unfinished(self) -> bool:
        """`True` if the first copies are not all made yet, in a folder that can be written to."""
        return not self._is_readonly and not self.read().is_whole

    @property
    def is_lost(self) -> bool:
        """`True` if the writer's folder was deleted or moved while in use."""
        if self._descriptor is None:
            return False
        try:
            found = (self.folder / LOCK).stat()
        except OSError:
            return True
        return not os.path.samestat(found, os.fstat(self._descriptor))

    def take_lock(self) -> bool:
        """Try to become the writer. Returns `True` if this process is the writer."""
        if self._descriptor is not None:
            return not self.is_lost
        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            self._is_readonly = True
            return False
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def require_lock(self) -> None:
        """Raise `DatasetRefused` if another process writes, or if the folder was deleted."""
        self.require_folder()
        if not self.take_lock():
            raise DatasetRefused(
                "Data sets cannot change here: another process of this server writes them.",
                hint="One process at a time writes to `analyst.store`; ask that one, or stop it.",
            )

    def require_folder(self) -> None:
        """Raise `DatasetRefused` if the folder was deleted."""
        if self.is_lost:
            logger.error("The folder %r of the analyst was deleted: %s", str(self.folder), LOSS)
            raise DatasetRefused(f"Data sets cannot change here now. {LOSS}")

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self) -> Manifest:
        """Read the manifest; return one without entries if it is missing or damaged."""
        try:
            text = (self.folder / MANIFEST).read_text(encoding="utf-8")
            return _decode_manifest(json.loads(text))
        except FileNotFoundError:
            return Manifest(is_whole=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("The list of data sets of the analyst is unreadable: %s.", error)
            return Manifest()

    def stamp(self) -> int:
        """Return a fingerprint that changes whenever the manifest does."""
        with contextlib.suppress(OSError):
            stat = (self.folder / MANIFEST).stat()
            return hash((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return 0

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest atomically."""
        data = {"version": VERSION, **asdict(manifest)}
        temporary = self.folder / f"{MANIFEST}.tmp"
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / MANIFEST)

    def locate(self, entry: ManifestEntry) -> Path:
        """Return the file of an entry."""
        return Path(entry.file) if entry.is_foreign else self.folder / entry.file

    def count_bytes(self, manifest: Manifest, owner: str, *, is_prefix: bool = False) -> int:
        """Return the size of the data sets that an owner saved, or all with a common prefix."""
        paths = [
            self.locate(one)
            for one in manifest.entries
            if one.owner == owner or (is_prefix and (one.owner or "").startswith(owner))
        ]
        return sum(path.stat().st_size for path in paths if path.exists())

    def new_file(self, name: str) -> Path:
        """Return a path for a new file, with a suffix that marks it as unfinished."""
        return self.folder / f"{name[:60]}-{secrets.token_hex(8)}.part"

    def finish(self, part: Path) -> Path:
        """Rename a finished file to its final name."""
        return part.rename(part.with_suffix(".duckdb"))

    def discard(self, part: Path) -> None:
        """Delete an unfinished file, and what was written beside it."""
        for path in self.folder.glob(f"{part.stem}*"):
            _remove(path)

    def clean(self, keep: Iterable[ManifestEntry]) -> None:
        """Delete database files without an entry, if this process may write."""
        if not self.is_writer:
            return
        names = {entry.file for entry in keep if not entry.is_foreign}
        for pattern in ("*-????????????????.duckdb", "*-????????????????.part*", ".links-*"):
            for path in self.folder.glob(pattern):
                if path.name not in names:
                    _remove(path)


def _decode_manifest(value: Any) -> Manifest:
    if value["version"] != VERSION:
        raise ValueError(f"it is of the version {value['version']!r}")
    entries = [_decode_entry(entry) for entry in cast("list[Any]", value["entries"])]
    is_whole = value.get("is_whole", True)
    return Manifest(entries=entries, next_alias=int(value["next_alias"]), is_whole=is_whole)


def _decode_entry(value: dict[str, Any]) -> ManifestEntry:
    tables = [decode_table(table) for table in value["tables"]]
    fields: dict[str, Any] = {**value, "tables": tables, "tags": tuple(value["tags"])}
    entry = ManifestEntry(**fields)
    if not (entry.alias[:1] == "d" and entry.alias[1:].isdigit()):
        raise ValueError("an alias is malformed")
    if not entry.is_foreign and Path(entry.file).name != entry.file:
        raise ValueError("a file is outside of the folder")
    return entry


def decode_table(value: dict[str, Any]) -> StoredTable:
    """Return a table from its plain values."""
    columns = [Column(column["name"], column["type"]) for column in value["columns"]]
    fields: dict[str, Any] = {**value, "columns": columns}
    return StoredTable(**fields)


def read_table(
    connection: "DuckDBPyConnection",
    name: str,
    table: str,
    database: str,
    schema: str = "main",
) -> StoredTable:
    """Return the stored table: its name for questions, columns and row count."""
    physical = ".".join(map(quote_name, (database, schema, table)))
    cursor = connection.execute(f"FROM {physical} LIMIT 0")
    columns = [Column(item[0], str(item[1])) for item in cursor.description or ()]
    row: Any = connection.execute(f"SELECT count(*) FROM {physical}").fetchone()
    return StoredTable(
        name=name, table=table, row_count=int(row[0]), columns=columns, schema=schema
    )


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
