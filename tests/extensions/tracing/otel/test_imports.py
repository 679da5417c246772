"""OpenTelemetry is imported in one folder, and only where it is used."""

import ast
import subprocess
import sys
from collections.abc import Sequence

from tests.sources import PACKAGE, read_nodes


def _imports(nodes: Sequence[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_only_one_folder_imports_opentelemetry() -> None:
    found = {
        path.parent for path, nodes in read_nodes().items() if "opentelemetry" in _imports(nodes)
    }
    assert found == {PACKAGE / "extensions" / "tracing" / "otel"}


def test_a_runtime_that_exports_nothing_does_not_load_it() -> None:
    code = (
        "import sys; from copilot_runtime import CopilotRuntime, Settings; "
        "from copilot_runtime.adapters.empty import EmptyAdapter; "
        "runtime = CopilotRuntime(EmptyAdapter(), settings=Settings(threads='memory')); "
        "runtime.telemetry.start_span('chat').end(); "
        "assert 'opentelemetry' not in sys.modules, 'it is loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
