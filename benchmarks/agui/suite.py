"""The suite of CopilotKit from 1.50 over AG-UI, beside @copilotkit/runtime 1.74 and pydantic-ai.

A runtime has two upstreams, and is measured with each: a model (OpenAI), which it must answer for
as an agent, and an agent that speaks AG-UI itself, whose events it checks and passes on.
"""

from pathlib import Path

from benchmarks.streaming import installs
from benchmarks.streaming.clients import AGUI
from benchmarks.streaming.commands import HAS_BASE, serve_base, serve_ours, uvicorn
from benchmarks.streaming.suite import Suite, Target
from benchmarks.streaming.v1 import NGINX
from benchmarks.streaming.verdict import Measure, Promise, highest, lowest, ratio

_HERE = Path(__file__).parent
_TARGETS = _HERE / "targets"
_NODE = _TARGETS / "node-v2"
_PYDANTIC_AI = _TARGETS / "pydantic-ai"
_NODE_COMMAND = ["node", str(_NODE / "server.mjs")]
_NODE_RUN = "/api/copilotkit/agent/{}/run"
_OURS_COMMAND = serve_ours("/graphql")
_OURS_RUN = "/graphql/agent/{}/run"
_MOCK_RUN = "/agui/run"

TARGETS: dict[str, Target] = {
    "direct": Target(AGUI, _MOCK_RUN),
    "nginx": Target(AGUI, _MOCK_RUN, NGINX, installs.nginx, optional=True),
    "pydantic-ai": Target(
        AGUI,
        "/run",
        uvicorn(_PYDANTIC_AI, "app:app", installs.venv_python(_PYDANTIC_AI)),
        installs.venv(_PYDANTIC_AI),
    ),
    "node-openai": Target(AGUI, _NODE_RUN.format("default"), _NODE_COMMAND, installs.npm(_NODE)),
    "node-agui": Target(AGUI, _NODE_RUN.format("remote"), _NODE_COMMAND, installs.npm(_NODE)),
    "ours-openai": Target(AGUI, _OURS_RUN.format("default"), _OURS_COMMAND),
    "ours-agui": Target(AGUI, _OURS_RUN.format("remote"), _OURS_COMMAND),
}
if HAS_BASE:
    TARGETS |= {
        "base-openai": Target(AGUI, _OURS_RUN.format("default"), serve_base("/graphql")),
        "base-agui": Target(AGUI, _OURS_RUN.format("remote"), serve_base("/graphql")),
    }


def _of_node(case: str, upstream: str, figure: str) -> Measure:
    return ratio(case, f"ours-{upstream}", f"node-{upstream}", figure)


_CHUNK, _CHAT, _RATE = "cpu_us_per_chunk", "cpu_ms_per_chat", "chunks_per_s"
PROMISES = (
    Promise("OpenAI, B: CPU per chunk, of Node", 0.25, 0.12, "x", _of_node("B", "openai", _CHUNK)),
    Promise("OpenAI, D: CPU per chat, of Node", 0.15, 0.05, "x", _of_node("D", "openai", _CHAT)),
    Promise("OpenAI, C20: chunks/s, of Node", 2, 2.5, "x", _of_node("C20", "openai", _RATE), True),
    Promise("OpenAI, C20: failed chats", 0, 0, "", highest("C20", "ours-openai", "failed")),
    Promise(
        "OpenAI, F: runs of 100 that went on",
        100,
        100,
        "",
        lowest("F", "ours-openai", "went_on"),
        True,
    ),
    Promise("AG-UI, B: CPU per chunk, of Node", 0.45, 0.3, "x", _of_node("B", "agui", _CHUNK)),
    Promise("AG-UI, D: CPU per chat, of Node", 0.3, 0.1, "x", _of_node("D", "agui", _CHAT)),
    Promise("AG-UI, C20: chunks/s, of Node", 2, 2.5, "x", _of_node("C20", "agui", _RATE), True),
    Promise("AG-UI, C20: failed chats", 0, 0, "", highest("C20", "ours-agui", "failed")),
    Promise(
        "AG-UI, F: runs of 100 that went on",
        100,
        100,
        "",
        lowest("F", "ours-agui", "went_on"),
        True,
    ),
)

AGUI_SUITE = Suite(
    module="benchmarks.agui.runner",
    targets=TARGETS,
    chosen=tuple(TARGETS),
    peers=("node-openai", "node-agui", *(["base-openai", "base-agui"] if HAS_BASE else [])),
    promises=PROMISES,
    out=_HERE / "results.jsonl",
)
