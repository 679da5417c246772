"""What SQL that gets through must not reach: other people's rows, files, the network, settings."""

import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from copilot_runtime.extensions.analyst.engine.sandbox import EngineOptions, Sandbox
from copilot_runtime.extensions.analyst.results import Column
from copilot_runtime.extensions.analyst.sql.rules import (
    GuardRules,
    Scope,
    TableRule,
    list_safe_functions,
)

CANARY = "CANARY"
NUMBER = "987654321"
BOB = Scope(user="bob")
_SETTINGS = "SELECT name, value FROM duckdb_settings() ORDER BY name"


@dataclass(frozen=True)
class Outcome:
    """What a statement returned: rows as a sorted text, or DuckDB's error."""

    rows: str = ""
    error: str = ""
    is_late: bool = False

    def find_canary(self, sql: str) -> str | None:
        """Return what of other people is in it, unless the statement says so itself."""
        text = self.rows + self.error
        return next((word for word in (CANARY, NUMBER) if word in text and word not in sql), None)


class World:
    """Two sandboxes that differ in other people's rows only, files, and a listener.

    A query of one person must return the same in both.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "canary.csv"
        self.file.write_text(f"a,b\n{CANARY}_file,{NUMBER}\n", encoding="utf-8")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.databases = [_make(folder / f"data{many}.duckdb", many) for many in (3, 700)]
        options = EngineOptions(folder=folder / "store", threads=1, memory_limit="256MB")
        self._sandboxes = [Sandbox(options, {"d1": path}) for path in self.databases]
        self._before = self._look()
        self.rules = self._make_rules()

    def close(self) -> None:
        """Close all."""
        for sandbox in self._sandboxes:
            sandbox.close()
        self._listener.close()

    @property
    def places(self) -> Mapping[str, str]:
        """What stands for the names in braces of the corpus."""
        return {
            "{file}": str(self.file),
            "{folder}": str(self.folder),
            "{database}": str(self.databases[0]),
            "{port}": str(self.port),
        }

    def run(self, sql: str, seconds: float = 2.0) -> list[Outcome]:
        """Return what a statement returns in both sandboxes."""
        return [_run(sandbox, sql, seconds) for sandbox in self._sandboxes]

    def find_damage(self) -> list[str]:
        """Return what has changed: files, tables, settings, connections to the listener."""
        damage: list[str] = []
        try:
            self._listener.accept()
            damage.append("somebody connected to the listener")
        except BlockingIOError:
            pass
        now = self._look()
        return damage + [f"{key} changed" for key in self._before if self._before[key] != now[key]]

    def _look(self) -> dict[str, Any]:
        files = {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())}
        seen: dict[str, Any] = {"files": files, "canary": self.file.read_text(encoding="utf-8")}
        for number, sandbox in enumerate(self._sandboxes):
            cursor = sandbox.open_cursor()
            for name in ("orders", "notes", "secrets"):
                query = (
                    f"SELECT count(*), md5(string_agg(t::VARCHAR, '' ORDER BY ALL)) FROM {name} t"
                )
                query = query.replace(" ORDER BY ALL", " ORDER BY t::VARCHAR")
                seen[f"{name} {number}"] = cursor.execute(query).fetchall()
            seen[f"settings {number}"] = cursor.execute(_SETTINGS).fetchall()
            cursor.close()
        return seen

    def _make_rules(self) -> GuardRules:
        cursor = self._sandboxes[0].open_cursor()
        names = cursor.execute("SELECT function_name FROM duckdb_functions() WHERE internal")
        functions = list_safe_functions(name for (name,) in names.fetchall())
        cursor.close()
        columns = [
            Column("id", "INTEGER"),
            Column("tenant", "VARCHAR"),
            Column("note", "VARCHAR"),
            Column("amount", "INTEGER"),
        ]
        return GuardRules(
            tables={
                "orders": TableRule(
                    physical='"d1"."main"."orders"', columns=columns, row_filter="tenant = $user"
                ),
                "notes": TableRule(
                    physical='"d1"."main"."notes"',
                    columns=[Column("id", "INTEGER"), Column("body", "VARCHAR")],
                    row_filter="team IN (SELECT team FROM perms WHERE member = $user)",
                ),
                "kpi": TableRule(
                    physical='"d1"."main"."kpi"', columns=[Column("value", "INTEGER")]
                ),
            },
            functions=functions,
            filter_tables={"perms": '"d1"."main"."perms"'},
        )


def _make(path: Path, many: int) -> Path:
    """Write a database in which others have so many rows."""
    others = f"FROM range({many}) t(i)"
    with duckdb.connect(str(path)) as connection:
        for statement in (
            "CREATE TABLE orders(id INTEGER, tenant VARCHAR, note VARCHAR, amount INTEGER)",
            f"INSERT INTO orders SELECT {NUMBER}, 'eve', '{CANARY}_' || i, {NUMBER} {others}",
            "INSERT INTO orders SELECT i, 'bob', i::VARCHAR, i * 2 FROM range(20) t(i)",
            f"INSERT INTO orders SELECT {NUMBER}, 'eve', '{CANARY}_' || i, -{NUMBER} {others}",
            "CREATE TABLE notes(id INTEGER, team VARCHAR, body VARCHAR)",
            f"INSERT INTO notes SELECT i, 'red', '{CANARY}_' || i {others}",
            "INSERT INTO notes SELECT i, 'blue', i::VARCHAR FROM range(12) t(i)",
            "CREATE TABLE perms(member VARCHAR, team VARCHAR)",
            f"INSERT INTO perms VALUES ('bob', 'blue'), ('{CANARY}', 'red')",
            "CREATE TABLE kpi(name VARCHAR, value INTEGER)",
            "INSERT INTO kpi VALUES ('a', 1), ('b', 5), ('c', NULL)",
            "CREATE TABLE secrets(id INTEGER, word VARCHAR)",
            f"INSERT INTO secrets SELECT {NUMBER}, '{CANARY}_' || i {others}",
            "CREATE MACRO f() AS (SELECT max(word) FROM secrets)",
            f"CREATE TYPE mood AS ENUM ('{CANARY}_mood')",
        ):
            connection.execute(statement)
    return path


def _run(sandbox: Sandbox, sql: str, seconds: float) -> Outcome:
    cursor = sandbox.open_cursor()
    timer = threading.Timer(seconds, cursor.interrupt)
    timer.start()
    try:
        rows = cursor.execute(sql).fetchmany(200)
        names = [item[0] for item in cursor.description or ()]
        return Outcome(rows=repr([names, *sorted(map(repr, rows))]))
    except duckdb.InterruptException:
        return Outcome(is_late=True)
    except (duckdb.Error, ValueError, OverflowError) as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
    finally:
        timer.cancel()
        cursor.close()
