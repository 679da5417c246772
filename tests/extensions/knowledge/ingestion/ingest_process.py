"""An ingestion to be killed, started with a store and a folder.

It prints a line when it begins, and how many resources it stored at its end.
"""

import asyncio
import sys

from copilot_runtime.extensions.knowledge.ingestion import Ingestion
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.storage import LocalStorage


async def main(store: str, folder: str) -> None:
    """Take a folder into a store."""
    read_page(b"<p>", "https://ex.org/")
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    storage = LocalStorage(store)
    report = await Ingestion(ResourceIndex(storage)).run([folder])
    await storage.aclose()
    sys.stdout.write(f"{report.resources}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
