"""`copilot-runtime ingest` in a process of its own, beside a server that has the same storage."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.processes import Program, finished, running

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "copilot_runtime"]
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("COPILOT")} | {
    "PYTHONPATH": str(ROOT),
    "COPILOT_KNOWLEDGE_STORAGE": "local:store",
    "COPILOT_KNOWLEDGE_EMBEDDER": "hashing",
}


def ingest(folder: Path, *paths: str) -> Any:
    done = finished([*COMMAND, "ingest", *paths, "--json"], cwd=folder, env=ENVIRON)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find(url: str, question: str) -> list[str]:
    """Return the texts that the server finds, the best first."""
    with urlopen(f"{url}/knowledge/search?q={question}") as response:
        return [one["text"] for one in json.load(response)["results"]]


def find_at_last(url: str, question: str, text: str) -> None:
    began = time.monotonic()
    while text not in "".join(find(url, question)[:1]):  # a search looks every five seconds
        assert time.monotonic() - began < 60
        time.sleep(0.05)


def read_url(server: Program) -> str:
    return server.until(r"http://[^\s/]+:\d+")[0] + "/graphql"


def test_what_it_takes_in_is_found_by_the_server_and_embedded_once(tmp_path: Path) -> None:
    for folder, text in (("old", "Soup on Mondays"), ("new", "A walrus in the harbour")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(f"# Page\n\n{text}.\n")
    environ = ENVIRON | {"COPILOT_KNOWLEDGE_SOURCES": "old", "COPILOT_THREADS": "memory"}
    serve = [*COMMAND, "serve", "--port", "0"]
    with running(serve, cwd=tmp_path, env=environ) as server:
        url = read_url(server)
        find_at_last(url, "soup", "Soup on Mondays")

        first = ingest(tmp_path, "new")
        find_at_last(url, "walrus", "A walrus in the harbour")
        find_at_last(url, "soup", "Soup on Mondays")

    embedded = [report["vectors"]["added"] for report in (first, ingest(tmp_path, "old", "new"))]
    assert embedded == [1, 0]
    assert [*(tmp_path / "store" / "vectors").rglob("lock.json")] == []
