"""The React code of the documents is accepted by TypeScript, with the packages it imports."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.documents import ROOT, Block, blocks
from tests.npm import install

OPTIONS = {
    "target": "ES2022",
    "lib": ["ES2022", "DOM"],
    "module": "ESNext",
    "moduleResolution": "bundler",
    "jsx": "react-jsx",
    "strict": True,
    "noUnusedLocals": True,
    "skipLibCheck": True,
    "noEmit": True,
    "types": [],
}


def version(block: Block) -> str:
    """Return the example that has the packages of a block."""
    later = "@copilotkit/react-core/v2" in block.code
    return "react-v2" if later else "react-v1"


@pytest.mark.skipif(not shutil.which("npm"), reason="needs Node")
@pytest.mark.parametrize("example", ["react-v1", "react-v2"])
def test_every_component_compiles(example: str, tmp_path: Path) -> None:
    folder = ROOT / "examples" / example
    install(folder)
    chosen = [block for block in blocks("tsx") if version(block) == example]
    for number, block in enumerate(chosen):
        (tmp_path / f"{block.page.replace('/', '-')}-{number}.tsx").write_text(block.code)
    (tmp_path / "styles.d.ts").write_text('declare module "*.css";\n')
    (tmp_path / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS}))
    (tmp_path / "node_modules").symlink_to(folder / "node_modules")
    done = subprocess.run(
        [str(folder / "node_modules" / ".bin" / "tsc"), "--project", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(chosen) > 1
