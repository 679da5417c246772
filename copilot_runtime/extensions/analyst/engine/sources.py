"""The operator's data sources: files, DuckDB databases and PostgreSQL."""

import glob
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from copilot_runtime.base.errors import ConfigurationFailed, UnknownName
from copilot_runtime.base.links import (
    IS_ALIAS,
    LEADS_OUT,
    find_fixed_part,
    find_way_out,
    is_alias,
)
from copilot_runtime.extensions.analyst.engine.csv.forms import DateOrder
from copilot_runtime.extensions.analyst.engine.datasets import make_table_name

logger = logging.getLogger(__name__)

SourceKind = Literal["csv", "xlsx", "parquet", "json", "duckdb", "sqlite", "postgres"]
SourceMode = Literal["copy", "attach"]

SUFFIXES: Mapping[str, SourceKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".parquet": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".db": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}
"""File suffix to file format. `.gz` and `.zst` may follow. A `.db` file of SQLite is detected and
read as such."""

_COMPRESSION = (".gz", ".zst")
_READING = 10
"""Changes when files are read in another way, so that they are copied anew."""

_OLD_WORKBOOKS = (".xls", ".xlsb", ".ods", ".numbers")
_WITH_TEXTS = ("csv", "xlsx", "json")
"""The kinds of sources whose types are found, and can be set."""
_OF_TEXTS = ("columns", "dates")
_DATES: Mapping[str, DateOrder] = {"day-first": "day-first", "month-first": "month-first"}
_TYPE = re.compile(r"[A-Z]+(?: [A-Z]+)*(?:\([0-9]+(?:, ?[0-9]+)?\))?")
_HINT = (
    "Sources are files (.csv, .xlsx, .parquet, .json, .duckdb, .sqlite), globs of files, and "
    "postgresql:// URLs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """A data source from the settings."""

    name: str = ""
    """The name of the data set if the source is one table. A glob with a name is one data set of
    all its files; without a name, each file is one."""
    location: str
    """A path, a glob or a URL; URLs may contain a password: never display it."""
    kind: SourceKind
    description: str = ""
    mode: SourceMode = "copy"
    """`attach` reads a DuckDB file in place; no process may write to it meanwhile."""
    table: str | None = None
    """The only table of a database, or sheet of a workbook, to use; `None` for all. `schema.table`
    names the schema."""
    for_operators: bool = False
    """`True` if only operators may query it."""
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Column of a CSV file or sheet → its type in DuckDB, such as `VARCHAR`; others are found."""
    dates: DateOrder | None = None
    """The order of day and month in its texts, where its values do not show it."""

    @property
    def label(self) -> str:
        """A label without password or folder, for messages to users."""
        if self.kind != "postgres":
            return Path(self.location).name
        return f"PostgreSQL {urlsplit(self.location).path.strip('/') or 'postgres'!r}"


def parse_source(value: str | Mapping[str, Any]) -> DataSource:
    """Return the source of a setting.

    A string is a location, or `name=location`. A mapping has `location` and other fields of
    `DataSource`. Raises `ConfigurationFailed` for anything else.
    """
    fields = _split_text(value) if isinstance(value, str) else _read_mapping(value)
    location = fields.get("location", "")
    if not location or "\x00" in location:
        raise ConfigurationFailed("A data source has no location.", hint=_HINT)
    kind = find_kind(location)
    mode = fields.get("mode") or "copy"
    if mode not in {"copy", "attach"}:
        raise UnknownName("mode of a data source", mode, ["attach", "copy"])
    if mode == "attach" and kind != "duckdb":
        raise ConfigurationFailed(
            f"A {kind} source cannot be attached.", hint="Leave its mode out: it is then copied."
        )
    return DataSource(
        name=make_table_name(fields["name"]) if fields.get("name") else "",
        location=location,
        kind=kind,
        description=fields.get("description", ""),
        mode=cast("SourceMode", mode),
        table=fields.get("table") or None,
        for_operators=not isinstance(value, str) and value.get("for_operators") is True,
        columns=_read_types(value, kind),
        dates=_read_order(fields.get("dates"), kind),
    )


def find_kind(location: str) -> SourceKind:
    """Return the kind of a source, judged by its location alone."""
    if re.match(r"postgres(ql)?://", location):
        return "postgres"
    if re.match(r"\w{2,}://", location):
        raise ConfigurationFailed(
            f"The analyst reads no {location.partition('://')[0]}:// sources.", hint=_HINT
        )
    name = location.lower()
    for ending in _COMPRESSION:
        name = name.removesuffix(ending)
    suffix = Path(name).suffix
    if suffix in _OLD_WORKBOOKS:
        raise ConfigurationFailed(
            f"The data source {Path(location).name!r} is a workbook that the analyst cannot read.",
            hint="Save it as .xlsx, or each of its sheets as .csv.",
        )
    if suffix not in SUFFIXES:
        raise ConfigurationFailed(
            f"The data source {Path(location).name!r} is of no known format.", hint=_HINT
        )
    return SUFFIXES[suffix]


def _split_text(text: str) -> Mapping[str, str]:
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\S.*)", text, re.DOTALL)
    return {"name": match[1], "location": match[2]} if match else {"location": text.strip()}


def _read_mapping(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ConfigurationFailed("A data source is neither a text nor a mapping.", hint=_HINT)
    mapping = cast("Mapping[object, object]", value)
    names = ("name", "location", "description", "mode", "table", "for_operators", *_OF_TEXTS)
    for key, item in mapping.items():
        if key not in names:
            raise UnknownName("setting of a data source", str(key), names)
        if key in ("for_operators", "columns"):
            continue
        if not isinstance(item, str | None):
            raise ConfigurationFailed(f"The {key} of a data source is not a text.", hint=_HINT)
    return {str(key): item for key, item in mapping.items() if isinstance(item, str)}


def _read_types(value: str | Mapping[str, Any], kind: SourceKind) -> Mapping[str, str]:
    """Return the types of columns that a mapping names."""
    columns: object = {} if isinstance(value, str) else value.get("columns") or {}
    if not isinstance(columns, Mapping) or (columns and kind not in _WITH_TEXTS):
        raise ConfigurationFailed(
            "The columns of a data source are not those of a CSV or JSON file, or a workbook.",
            hint="They look like `columns: {postcode: VARCHAR, amount: DOUBLE}`.",
        )
    types = {
        str(name): str(type).upper() for name, type in cast(Mapping[Any, Any], columns).items()
    }
    for name, type in types.items():
        if not _TYPE.fullmatch(type):
            raise ConfigurationFailed(
                f"The type {type!r} of the column {name!r} is none of DuckDB.",
                hint="Types are VARCHAR, BIGINT, DOUBLE, DECIMAL(18, 2), BOOLEAN, DATE, TIMESTAMP.",
            )
    return types


def _read_order(text: str | None, kind: SourceKind) -> DateOrder | None:
    if text is None:
        return None
    if text not in _DATES or kind not in _WITH_TEXTS:
        raise UnknownName("order of the dates of a CSV or JSON file, or a workbook", text, _DATES)
    return _DATES[text]


def expand_sources(sources: Sequence[DataSource]) -> Sequence[DataSource]:
    """Return one source per file of a glob without a name or of databases, each with its own name.

    A glob without matching files is returned unchanged: reading it fails.
    """
    found: list[DataSource] = []
    for source in sources:
        is_database = source.kind in {"duckdb", "sqlite"}
        if source.kind == "postgres" or (source.name and not is_database):
            source = replace(source, name=source.name or _name_source(source))
            if source.kind != "postgres":
                source = replace(source, description=_describe_links(source))
            found.append(source)
            continue
        try:
            files = list_files(source)
        except ConfigurationFailed:
            files = [Path(source.location)]
        name = source.name or (_name_source(source) if is_database and source.table else "")
        texts = [_describe_links(source), *[source.description] * len(files)]
        found += [
            replace(source, location=str(path), name=name or _name_file(path), description=text)
            for path, text in zip(files, texts, strict=False)
        ]
    names: set[str] = set()
    unique: list[DataSource] = []
    for source in found:
        name, number = source.name, 2
        while name in names:
            name, number = f"{source.name}_{number}", number + 1
        names.add(name)
        unique.append(replace(source, name=name))
    return unique


def _name_source(source: DataSource) -> str:
    if source.table:
        return make_table_name(source.table.rpartition(".")[2])
    if source.kind == "postgres":
        return make_table_name(urlsplit(source.location).path.strip("/") or "postgres")
    return _name_file(Path(source.location))


def _name_file(path: Path) -> str:
    return make_table_name(path.name.partition(".")[0])


def list_files(source: DataSource) -> Sequence[Path]:
    """Return the files of a source, in order. Raises `ConfigurationFailed` if none matches."""
    place = Path(source.location).expanduser()
    if place.is_file():
        return [place]
    files = [path for path, reason in _match(place) if not reason]
    if not files:
        raise ConfigurationFailed(
            f"There is no file {source.location!r} for the analyst.",
            hint="Relative paths count from the folder in which the server starts.",
            public="A data source of the analyst is missing.",
        )
    return files


def _match(pattern: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a glob in order, each with the reason for skipping it, or an empty text.

    A link out of the folder, or to another file of it, is skipped; a link that is named is not.
    """
    start = find_fixed_part(pattern)
    names = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute one
    for path in map(Path, sorted(names)):
        if path.is_file():
            reason = LEADS_OUT if find_way_out(path, start) else ""
            yield path, reason or (IS_ALIAS if is_alias(path, start) else "")


def _describe_links(source: DataSource) -> str:
    """Return the description of a source with the links that it skips, which are logged."""
    place = Path(source.location).expanduser()
    skipped = [] if place.is_file() else [(path, it) for path, it in _match(place) if it]
    for path, reason in skipped:
        logger.warning("The file %r is left out: it %s.", str(path), reason)
    notes = (f"{path.name} is left out: it {reason}." for path, reason in skipped)
    return " ".join([source.description, *notes]).strip()


def fingerprint_files(source: DataSource) -> str:
    """Return a fingerprint that changes with the names, sizes or times of a source's files."""
    files = list_files(source)
    logs = [path.with_name(path.name + end) for path in files for end in ("-wal", ".wal")]
    stats = [(str(path), path.stat()) for path in (*files, *logs) if path.exists()]
    parts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    options = (source.table, sorted(source.columns.items()), source.dates)
    return hashlib.sha256(repr((_READING, parts, options)).encode()).hexdigest()[:32]


TRACES = "traces"
"""The value in `analyst.data` for the traces of this runtime, and the name of that source."""


def read_source(value: str | Mapping[str, Any], trace_file: str) -> DataSource:
    """Return the source of a setting. Stored runs are for operators only.

    Raises `ConfigurationFailed`, which names the source.
    """
    if value != TRACES:
        try:
            return parse_source(value)
        except ConfigurationFailed as error:
            location = value if isinstance(value, str) else str(value.get("location", value))
            scheme, mark, _ = location.partition("://")  # a URL may have a password
            label = f"{scheme}://\u2026" if mark else location
            raise ConfigurationFailed(
                f"analyst.data, {label}: {error.message}", hint=error.hint
            ) from error
    if not trace_file:
        raise ConfigurationFailed(
            "analyst.data has traces, and this server keeps none in a file.",
            hint="Set telemetry.store to sqlite:.copilot/traces.db.",
        )
    return parse_source({"name": TRACES, "location": trace_file, "for_operators": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a copy."""

    source: str
    """The name of the source."""
    rows: int | None = None
    is_done: bool = False


OnProgress = Callable[[Progress], None]
"""Called in the event loop a few times per second while a source is copied."""
