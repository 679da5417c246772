import json
import re
from hashlib import sha256
from pathlib import Path

from copilot_runtime.extensions import console

VENDOR = Path(console.__file__).parent / "vendor"


def test_libraries_are_the_files_of_their_packages() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.js")}

    assert found == {name: library["sha256"] for name, library in manifest.items()}


def test_each_library_has_its_licence_beside_it() -> None:
    files = {path.name.removesuffix(".min.js") for path in VENDOR.glob("*.js")}

    assert files == {path.stem for path in VENDOR.glob("*.LICENSE")}


def test_no_library_ends_the_element_that_it_is_inlined_into() -> None:
    tag = re.compile(r"</script|<script[\s/>]", re.I)

    assert not any(tag.search(path.read_text("utf-8")) for path in VENDOR.glob("*.js"))
