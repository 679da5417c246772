"""OpenTelemetry is imported in one folder, and only where it is used."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4] / "copilot_runtime"


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return names


def test_only_one_folder_imports_opentelemetry() -> None:
    found = {path.parent for path in ROOT.rglob("*.py") if "opentelemetry" in _imports(path)}
    assert found == {ROOT / "extensions" / "tracing" / "otel"}


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
