"""`copilot-runtime knowledge ingest`."""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from copilot_runtime.adapters.embeddings import EMBEDDERS
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.cli.main import cli
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.ingestion import Processor, ProcessReport
from tests.extensions.knowledge.ingestion.conftest import DRUG, Shelf, article
from tests.in_one_test import in_one_test

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Run = Callable[..., Result]


@pytest.fixture
def run(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the command with a store beside the folder."""
    monkeypatch.setenv("COPILOT_KNOWLEDGE_STORAGE", "local:store")
    shelf.write("one.html", article("one", "First"))
    shelf.write("two.html", DRUG)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["knowledge", "ingest", *arguments])

    return call


def rows(result: Result) -> list[str]:
    """Return the lines of what was printed, with single spaces."""
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_the_report_is_a_table(run: Run) -> None:
    result = run("docs")
    assert result.exit_code == 0
    assert rows(result)[:12] == [
        "WHAT COUNT",
        "files new 2",
        "files changed 0",
        "files unchanged 0",
        "files removed 0",
        "files skipped 0",
        "files failed 0",
        "resources stored 2",
        "resources removed 0",
        "triples stored 6",
        "resources embedded 2",
        "resources not embedded 0",
    ]
    assert "files unchanged 2" in rows(run("docs"))


def test_what_failed_and_what_was_skipped_is_named(run: Run, shelf: Shelf) -> None:
    shelf.write("bad.html", "<div>" * 5000)
    shelf.write("picture.png", b"\x89PNG\r\n\x1a\n")
    shelf.write("script.html", '<script type="application/ld+json">{</script>' + DRUG)
    run("docs/two.html")
    shelf.remove("two.html")
    result = run("docs")
    assert result.exit_code == 1
    assert rows(result)[-5:] == [
        "FILE WHAT",
        "docs/two.html removed",
        "docs/picture.png skipped: image/png",
        "docs/script.html in part: The JSON-LD cannot be read: Expecting property name enclosed in "
        "double quotes: line 1 column 2 (char 1)",
        "docs/bad.html failed: The elements of the page are nested too deeply.",
    ]


def test_a_file_with_nothing_to_take_in_is_named_when_it_is_read(run: Run, shelf: Shelf) -> None:
    shelf.write("rule.md", "# #\n")
    shelf.write("blank.txt", " \n")
    shelf.write("empty.html", "")

    assert "docs/rule.md nothing to take in" in rows(run("docs", "--dry-run"))
    found = run("docs")
    assert found.exit_code == 0
    assert {"files new 5", "resources stored 2"} <= {*rows(found)}
    assert rows(found)[-3:] == [
        "docs/blank.txt nothing to take in",
        "docs/empty.html nothing to take in",
        "docs/rule.md nothing to take in",
    ]
    shelf.write("blank.txt", "\n\n")
    report = json.loads(run("docs", "--json").stdout)
    assert (report["changed"], report["empty"]) == (["docs/blank.txt"], ["docs/blank.txt"])


def test_the_report_is_json_for_programs(run: Run) -> None:
    report = json.loads(run("docs", "--json", "--base", "https://intranet.example/kb").stdout)
    assert report["new"] == ["docs/one.html", "docs/two.html"]
    assert (report["resources"], report["failed"], report["dry_run"]) == (2, {}, False)
    assert report["vectors"] == {
        "added": 2,
        "changed": 0,
        "removed": 0,
        "failed": {},
        "tokens": 0,
        "dollars": None,
    }


def test_what_embeddings_cost_and_what_was_not_embedded_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EMBEDDERS, "paid", f"{__name__}:PaidEmbedder")
    monkeypatch.setenv("COPILOT_KNOWLEDGE_EMBEDDER", "paid")
    result = run("docs")
    assert result.exit_code == 1
    found = rows(result)
    assert {"resources embedded 1", "resources not embedded 1"} <= {*found}
    assert {"tokens embedded 1000", "US dollars for them 0.0200"} <= {*found}
    assert found[-1].endswith("not embedded: Not this one.")


class PaidEmbedder(HashingEmbedder):
    """Takes two cents, and one text."""

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if len(texts) > 1 or self.tokens:
            raise ConfigurationFailed("Not this one.")
        self.tokens += 1000
        return await super().embed(texts)

    async def price(self, tokens: int) -> Decimal:
        return Decimal("0.02")


def test_nothing_is_taken_in_without_the_key_of_the_embedder(
    run: Run, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_EMBEDDER", "openai:text-embedding-3-small")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    result = run("docs")

    assert result.exit_code == 1
    assert str(result.exception) == "There is no API key for OpenAI."
    assert run("docs", "--dry-run").exit_code == 0
    monkeypatch.setenv("COPILOT_KNOWLEDGE_EMBEDDER", "hashing")
    assert "files new 2" in rows(run("docs"))


def test_a_dry_run_names_files_and_stores_nothing(run: Run) -> None:
    result = run("docs", "--dry-run")
    assert rows(result)[-3:] == ["FILE WHAT", "docs/one.html new", "docs/two.html new"]
    assert "files new 2" in rows(run("docs"))


def test_a_long_list_of_files_is_cut(run: Run, shelf: Shelf) -> None:
    for number in range(30):
        shelf.write(f"{number}.bin", b"\x00")
    assert rows(run("docs"))[-1] == "and 10 more: --json has all of them"


def test_what_is_taken_in_is_found(run: Run) -> None:
    run("docs")
    found = CliRunner().invoke(cli, ["knowledge", "graph", "?", "schema:name", "?", "--json"])
    assert '"<https://e/drug>"' in found.stdout or "https://e/drug" in found.stdout


def test_without_paths_those_of_the_settings_are_taken_in(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run()
    assert isinstance(result.exception, CopilotError)
    assert "nothing to take in" in str(result.exception)
    monkeypatch.setenv("COPILOT_KNOWLEDGE_SOURCES", "docs")
    assert "files new 2" in rows(run())


def test_a_second_ingestion_says_that_there_is_a_first_one(run: Run) -> None:
    async def write_lock() -> None:
        knowledge = Knowledge("local:store")
        lock = {"id": "x", "pid": 1, "host": "elsewhere", "time": 99999999999}
        await knowledge.storage.put("ingestion/lock.json", json.dumps(lock).encode())
        await knowledge.aclose()

    asyncio.run(write_lock())
    result = run("docs")
    assert isinstance(result.exception, CopilotError)
    assert "process 1 on elsewhere" in str(result.exception)


def test_a_terminal_sees_progress(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copilot_runtime.cli.progress.is_terminal", lambda: True)
    shown = run("docs").stderr
    assert "Reading    [##############################] 2/2" in shown
    assert "Storing " in shown
    assert shown.endswith("\r")


@in_one_test("pattern", ["nix/*.md", "doc*", "docs/**/*.pdf"])
def test_a_pattern_that_fits_no_file_is_named(run: Run, pattern: str) -> None:
    assert f"{pattern} fits no file" in rows(run("docs", pattern))
    assert f"{pattern} fits no file" in rows(run(pattern, "--dry-run"))
    assert json.loads(run("docs/*.html", pattern, "--json").stdout)["unmatched"] == [pattern]


@in_one_test("base", ["not-an-iri", "https://a b", " https://a.example/", "<urn:x>"])
def test_a_base_that_is_no_iri_is_refused_before_anything_is_read(run: Run, base: str) -> None:
    error = run("docs", "--base", base).exception

    assert isinstance(error, ConfigurationFailed)
    assert error.message == f"The base {base!r} is no IRI."
    with pytest.raises(ConfigurationFailed, match="is no IRI"):
        Knowledge("memory", base=base)


def test_sources_of_the_settings_need_not_be_there_where_they_are_not_read(
    run: Run, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_KNOWLEDGE_SOURCES", "elsewhere")

    assert run("docs").exit_code == 0
    assert CliRunner().invoke(cli, ["knowledge", "search", "First"]).exit_code == 0
    assert "no file or folder 'elsewhere'" in str(run().exception)


pytestmark = pytest.mark.anyio


class Doubler(Processor[int]):
    """Doubles numbers, but no odd ones."""

    batch_size = 2

    def __init__(self) -> None:
        self.results: list[int] = []
        self.batches: list[list[int]] = []
        self.most = 0
        self._running = 0

    async def discover(self) -> Iterable[int]:
        return [2, 3, 4, 5, 6]

    async def process_item(self, item: int) -> None:
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        if item == 3:
            raise Misuse("Three is odd.")
        if item == 5:
            raise ValueError("odd")
        self.results.append(2 * item)

    async def finish_batch(self, items: Sequence[int]) -> None:
        self.batches.append([*items])


async def test_items_are_processed_in_batches_and_failures_are_reported() -> None:
    doubler = Doubler()
    progress: list[tuple[int, int]] = []
    report = await doubler.process(progress=lambda done, total: progress.append((done, total)))
    assert report == ProcessReport(3, {"3": "Three is odd.", "5": "ValueError: odd"})
    assert doubler.results == [4, 8, 12]
    assert doubler.batches == [[2, 3], [4, 5], [6]]
    assert progress == [(2, 5), (4, 5), (5, 5)]
    assert doubler.most == 2


async def test_items_may_be_given() -> None:
    doubler = Doubler()
    assert await doubler.process([10]) == ProcessReport(1)
    assert doubler.results == [20]


async def test_nothing_to_do_is_no_error() -> None:
    assert await Doubler().process([]) == ProcessReport()


async def test_a_batch_has_at_least_one_item() -> None:
    doubler = Doubler()
    doubler.batch_size = 0
    with pytest.raises(Misuse, match="0 items"):
        await doubler.process()


async def test_the_default_is_to_do_nothing_at_the_end_of_a_batch() -> None:
    class Plain(Processor[str]):
        async def discover(self) -> Iterable[str]:
            return ["a"]

        async def process_item(self, item: str) -> None:
            assert item == "a"

    assert await Plain().process() == ProcessReport(1)


async def test_a_cancellation_ends_the_work() -> None:
    class Endless(Processor[int]):
        async def discover(self) -> Iterable[int]:
            return [1]

        async def process_item(self, item: int) -> None:
            await asyncio.Event().wait()

    task = asyncio.create_task(Endless().process())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
