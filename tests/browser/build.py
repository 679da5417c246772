"""Builds the React examples, unless the build at hand is that of their sources."""

from pathlib import Path

from tests.npm import install, npm, once

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCES = ("package-lock.json", "package.json", "tsconfig.json", "vite.config.ts")


def built_page(name: str) -> Path:
    """Return the folder of an example's built page, building it first if need be."""
    example = EXAMPLES / name
    page = example / "dist"

    def build() -> None:
        install(example)
        npm(example, "run", "build")

    sources = [*(example / source for source in SOURCES), *sorted(example.glob("*.html"))]
    once(page, [*sources, example / "src"], build)
    return page
