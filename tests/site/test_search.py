"""The search of the site finds the page that answers a question in an asker's words."""

import json
import subprocess
from importlib.resources import files
from pathlib import Path

from tests.documents import DOCS

PAGES = {
    "hide a file from a user": "knowledge/policies",
    "watch a folder": "knowledge/start",
    "docx": "knowledge/ingestion",
    "read Word files": "knowledge/ingestion",
    "cost": "telemetry/cost",
    "what does it cost": "telemetry/cost",
    "connect Slack": "extend/transport",
    "which part do I need": "start/parts",
    "knowledge or analyst": "start/parts",
    "login of my FastAPI application": "start/fastapi",
    "start a new project": "start/quickstart",
    "replace Node": "start/from-node",
    "system prompt": "learn/instructions",
    "call a Python function": "learn/actions",
    "MCP server tools": "learn/mcp-servers",
    "approve a tool call": "learn/interrupts",
    "upload a PDF in the chat": "knowledge/files",
    "notify my server when a run ends": "learn/webhooks",
    "ask an agent every day": "learn/webhooks",
    "delete old conversations": "learn/threads",
    "who owns a thread": "learn/owners",
    "use Ollama": "models/ollama",
    "fallback to another model": "models/several",
    "LangGraph": "agents/langgraph",
    "ask questions about a CSV": "analyst/start",
    "create an API key": "access/keys",
    "rate limit per user": "access/limits",
    "back up the database": "run/backup",
    "several servers": "run/several-machines",
    "nginx": "run/nginx",
    "export traces to Langfuse": "telemetry/export",
    "compare with Chainlit": "why/comparisons",
    "max_body_bytes": "reference/settings/limits",
    "temperature": "reference/settings/models",
    "graceful shutdown": "run/health",
}
"""Question → its page."""


def test_a_question_finds_its_page_among_the_first_three(site: Path) -> None:
    assert [page for page in PAGES.values() if not (DOCS / f"{page}.md").is_file()] == []
    lunr = files("mkdocs.contrib.search").joinpath("templates/search/lunr.js")
    done = subprocess.run(
        [
            "node",
            Path(__file__).with_name("search.cjs"),
            str(lunr),
            site / "search/search_index.json",
        ],
        input=json.dumps([*PAGES]),
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(zip(PAGES, json.loads(done.stdout), strict=True))
    missed = {
        one: found[one] for one, page in PAGES.items() if f"{page}.html" not in found[one][:3]
    }
    assert missed == {}
