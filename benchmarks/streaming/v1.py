"""The suite of CopilotKit 1.10 over GraphQL, beside @copilotkit/runtime 1.10.6."""

from pathlib import Path

from benchmarks.streaming import installs
from benchmarks.streaming.clients import OPENAI, V1
from benchmarks.streaming.commands import HAS_BASE, serve_base, serve_ours, uvicorn
from benchmarks.streaming.results import Results
from benchmarks.streaming.suite import Suite, Target
from benchmarks.streaming.verdict import Measure, Promise, highest, median, ratio

_HERE = Path(__file__).parent
_TARGETS = _HERE / "targets"
_NODE = _TARGETS / "node-v1"
_COMPLETIONS = "/v1/chat/completions"
NGINX = ["sh", str(_TARGETS / "nginx.sh")]
"""Serves whatever the mock has, so it is the anchor of every suite."""

TARGETS: dict[str, Target] = {
    "direct": Target(OPENAI, _COMPLETIONS),
    "nginx": Target(OPENAI, _COMPLETIONS, NGINX, installs.nginx, optional=True),
    "py-aiohttp": Target(OPENAI, _COMPLETIONS, uvicorn(_TARGETS, "py_aiohttp:app")),
    "node-v1": Target(V1, "/copilotkit", ["node", str(_NODE / "server.mjs")], installs.npm(_NODE)),
    "ours": Target(V1, "/copilotkit", serve_ours("/copilotkit")),
    **({"base": Target(V1, "/copilotkit", serve_base("/copilotkit"))} if HAS_BASE else {}),
}


def _of_node(case: str, figure: str) -> Measure:
    return ratio(case, "ours", "node-v1", figure)


def _first_chunk_over_direct(results: Results) -> float | None:
    """Compare what the servers add to the wait for the first chunk."""
    ours, node, direct = (
        results.median("B1", target, "ttft_p50_ms") for target in ("ours", "node-v1", "direct")
    )
    if ours is None or node is None or direct is None or node <= direct:
        return None
    return (ours - direct) / (node - direct)


PROMISES = (
    Promise("B: CPU per chunk, of node-v1", 0.45, 0.3, "x", _of_node("B", "cpu_us_per_chunk")),
    Promise("A: CPU per chunk, of node-v1", 0.5, 0.3, "x", _of_node("A", "cpu_us_per_chunk")),
    Promise("D: CPU per chat, of node-v1", 0.3, 0.1, "x", _of_node("D", "cpu_ms_per_chat")),
    Promise(
        "C20: chunks/s, of node-v1", 2, 2.5, "x", _of_node("C20", "chunks_per_s"), at_least=True
    ),
    Promise("C20: failed chats", 0, 0, "", highest("C20", "ours", "failed")),
    Promise("B1: TTFT over direct, of node-v1", 0.5, 0.25, "x", _first_chunk_over_direct),
    Promise("B: chunk p99", 5, 2.5, " ms", median("B", "ours", "chunk_p99_ms")),
    Promise("C: idle memory", 80, 60, " MB", median("C", "ours", "idle_mb")),
    Promise("C: memory per open stream", 120, 80, " kB", median("C", "ours", "kb_per_stream")),
    Promise("E: first answer after start", 0.9, 0.5, " s", median("E", "ours", "first_answer_s")),
    Promise("F: upstreams left open of 100", 0, 0, "", highest("F", "ours", "leaked")),
    Promise("F: upstream closed, p99", 200, 20, " ms", highest("F", "ours", "close_p99_ms")),
)

V1_SUITE = Suite(
    module="benchmarks.streaming.runner",
    targets=TARGETS,
    chosen=("direct", "nginx", "node-v1", "ours", *(["base"] if HAS_BASE else [])),
    peers=("node-v1", *(["base"] if HAS_BASE else []), "nginx"),
    promises=PROMISES,
    out=_HERE / "results.jsonl",
)
