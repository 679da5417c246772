"""A locked DuckDB instance in which queries can only read, and its limits."""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.engine.datasets import quote_name, quote_text
from copilot_runtime.extensions.analyst.engine.errors import QueryFailed, parse_error

Config = dict[str, str | bool | int | float | list[str]]
"""The configuration for `duckdb.connect`."""

CONFIG: Mapping[str, str] = {
    "errors_as_json": "true",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",
    "max_temp_directory_size": "0GB",
}


_MEMORY_OF_WORKER = 128_000_000
"""Part of the memory limit for which one process may run: an idle one has 75 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Limits of the engine, and the folder of its files."""

    folder: Path
    """Folder for copies and saved data sets, written by this engine only."""
    memory_limit: str = "512MB"
    """Memory limit of all concurrent queries together, in DuckDB's notation. The kernel enforces
    it as well: DuckDB does not count the memory of functions."""
    threads: int = 2
    query_timeout: float = 30.0
    """Time limit of a query in seconds, excluding its wait for a slot."""
    copy_timeout: float = 60.0
    """CPU time that the copy of a small source may take on each thread, in seconds."""
    max_rows: int = 500_000
    """Maximum number of rows of any query, whatever its own limit."""
    max_cell: int = 65_536
    """Maximum characters of one text value; a longer one is cut and ends in `…`."""
    max_bytes: int = 8 * 1024 * 1024
    """Approximate limit on the text bytes of one result; beyond it, the result is truncated."""
    max_file: int = 1024 * 1024 * 1024
    """Maximum size of a saved data set, in bytes."""
    concurrency: int = 8
    """Maximum number of concurrent queries; others wait."""

    def build_config(self) -> Config:
        """Return the configuration of a locked connection."""
        return {**CONFIG, "memory_limit": self.memory_limit, "threads": str(self.threads)}

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        size = re.fullmatch(r"([0-9.]+) ?([KMGT])(I?)B", self.memory_limit.upper())
        assert size is not None
        return int(float(size[1]) * (1024 if size[3] else 1000) ** ("KMGT".index(size[2]) + 1))

    @property
    def memory_reserve(self) -> int:
        """Bytes of address space that a process may keep after a query, beside the limit."""
        return self.memory_bytes // 4

    @property
    def most_workers(self) -> int:
        """Maximum number of processes for queries, each of which needs memory of its own."""
        return min(self.concurrency, max(1, self.memory_bytes // _MEMORY_OF_WORKER))

    def __post_init__(self) -> None:
        for name in ("threads", "query_timeout", "max_rows", "max_cell", "concurrency"):
            if getattr(self, name) <= 0:
                raise ConfigurationFailed(
                    f"The engine's {name} is {getattr(self, name)!r}.", hint="Give more than 0."
                )


class Sandbox:
    """The data sets, attached read-only, without files, network, extensions and settings.

    Its main database is an empty read-only file that has been unlinked: only temporary objects can
    be created, and they are dropped with their cursor. Every query has its own cursor.
    """

    def __init__(self, options: EngineOptions, files: Mapping[str, Path]) -> None:
        """Open the sandbox with database files by their names in SQL."""
        self._path = ",".join(f'{quote_name(alias)}."main"' for alias in files)
        with tempfile.TemporaryDirectory(prefix="analyst-") as folder:
            self._connection = _open_empty(Path(folder) / "empty.duckdb", options)
        try:
            attach_files(self._connection, files, options.folder)
            lock_connection(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new isolated cursor, on which tables are found by their names.

        SQL on it is checked by DuckDB only.
        """
        cursor = self._connection.cursor()
        if self._path:
            cursor.execute(f"SET search_path = {quote_text(self._path)}")
        return cursor

    def close(self) -> None:
        """Close the connection and the files."""
        self._connection.close()


def attach_files(
    connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], folder: Path
) -> None:
    """Attach database files read-only, through links in `folder` that are deleted afterwards.

    DuckDB lets queries read attached files by their paths: these paths no longer exist then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".links-", dir=folder) as links:
        for alias, file in files.items():
            path = quote_text(str(_link_file(file, Path(links) / f"{alias}.duckdb")))
            connection.execute(f"ATTACH {path} AS {quote_name(alias)} (READ_ONLY)")


def _link_file(file: Path, link: Path) -> Path:
    """Return a hard link to a file, or its own path if linking fails, as across file systems."""
    log = file.with_name(f"{file.name}.wal")
    try:
        if log.exists():
            link.with_name(f"{link.name}.wal").hardlink_to(log)
        link.hardlink_to(file)
    except OSError:
        return file
    return link


def lock_connection(connection: duckdb.DuckDBPyConnection) -> None:
    """Permanently disable files, network and settings."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def check_statement(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise `QueryFailed` unless DuckDB parses SQL as a single SELECT statement.

    A second barrier after the guard: it refuses attachments, settings, transactions and prepared
    statements. The functions that a SELECT may call are checked by the guard.
    """
    if "\x00" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise QueryFailed("The SQL has characters that no text has.", kind="syntax")
    try:
        statements = cursor.extract_statements(sql)
    except duckdb.Error as error:
        raise parse_error(error) from None
    kinds = {"SELECT", "MULTI"}  # MULTI: a PIVOT that takes its columns from the rows
    if len(statements) != 1 or statements[0].type.name not in kinds:
        raise QueryFailed(
            "Only one statement that reads can run here.",
            kind="not_allowed",
            hint="Write one SELECT.",
        )


def _open_empty(file: Path, options: EngineOptions) -> duckdb.DuckDBPyConnection:
    duckdb.connect(str(file)).close()
    return duckdb.connect(str(file), read_only=True, config=options.build_config())
