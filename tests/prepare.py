"""Make all that tests want of npm, so that none has to wait for it: `python -m tests.prepare`."""

import shutil
from concurrent.futures import ThreadPoolExecutor

from tests.adapters.aimock import mock
from tests.browser.build import built_page
from tests.browser.test_accessibility import AXE
from tests.conformance import test_genui, test_grpc_node
from tests.conformance.v1 import node as v1
from tests.conformance.v2 import node as v2
from tests.npm import install

# what takes longest first
PAGES = ("react-v2", "generative-ui", "react-v1")
FOLDERS = (
    v1.HERE / "node-runtime",
    v2.HERE / "node-runtime",
    v2.HERE,
    v2.OLD,
    v1.HERE,
    mock.HERE,
    test_genui.HERE,
    test_grpc_node.HERE,
    AXE,
)


def main() -> None:
    if not shutil.which("npm"):
        print("Not installed: Node. The tests that need it are skipped.")  # noqa: T201
        return
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(built_page, name) for name in PAGES]
        made += [pool.submit(install, folder) for folder in FOLDERS]
    for each in made:
        each.result()


if __name__ == "__main__":
    main()
