"""`copilot-runtime serve --services`: a process that serves gRPC alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from copilot_runtime import __version__
from copilot_runtime.extensions.grpc.client import connect
from copilot_runtime.extensions.grpc.protos import vector_pb2
from copilot_runtime.extensions.grpc.protos.vector_pb2_grpc import VectorStub
from tests.extensions.grpc.servers import SECRET
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CONFIG = f"""
threads: memory
grpc: {{address: "127.0.0.1:0"}}
access: {{authenticate: [service_tokens]}}
service_tokens: {{secrets: [{SECRET}]}}
knowledge: {{storage: memory, sources: [pages]}}
"""


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "copilot_runtime", "serve", *words],
        cwd=folder,
        env={**os.environ, "COPILOT_LOG_LEVEL": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def test_a_machine_serves_vectors_and_a_graph_alone(tmp_path: Path) -> None:
    (tmp_path / "copilot.yml").write_text(CONFIG)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "hours.md").write_text("# Hours\n\nThe library opens at nine.\n")
    with start(tmp_path, "--services", "vector,graph") as process:
        assert process.stdout is not None
        banner = [process.stdout.readline() for _ in range(7)]
        address = banner[2].split()[1]
        async with connect(address, service="chat", secrets=[SECRET]) as channel:
            request = vector_pb2.SearchContentRequest(input=["when does the library open"])
            found = await VectorStub(channel).SearchContent(request)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, process.stderr and process.stderr.read()

    assert [passage.title for passage in found.passages] == ["Hours"]
    assert banner[0] == f"copilot-runtime {__version__} serves over gRPC\n"  # and no model
    assert [line.split()[-1] for line in banner[3:5]] == [
        "copilot.vector.v1.Vector",
        "copilot.graph.v1.Graph",
    ]


@in_one_test(
    ("words", "sentence"),
    [
        (["--services", "vector"], "grpc.services names 'vector', and there is no knowledge."),
        (["--services", "vectr"], "Did you mean 'vector'?"),
        (["--services", "tool", "--port", "80"], "--port is for HTTP"),
        (["--services", ""], "name no services"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "copilot.yml").write_text("threads: memory\n")
    with start(tmp_path, *words) as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert sentence in errors
    assert "Traceback" not in errors
