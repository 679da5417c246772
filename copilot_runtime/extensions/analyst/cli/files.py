"""`copilot-runtime analyst init`: write examples of the files that teach the analyst."""

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed

_TEMPLATES = "templates"

SETTINGS = """analyst:
  name: analyst
  data: [data/*.csv]       # also .parquet, .duckdb, postgresql://…"""
"""What a `copilot.yml` needs."""


def list_templates() -> Iterator[tuple[str, str]]:
    """Yield the path of each file below the folder, and its text."""
    yield from _walk(
        resources.files("copilot_runtime.extensions.analyst.cli").joinpath(_TEMPLATES), ""
    )


def write_examples(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Write each example, and yield its path and whether it was written.

    What is there stays as it is. Raises `ConfigurationFailed` for a folder that cannot be written.
    """
    for name, text in list_templates():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            if not path.parent.is_dir():
                raise ConfigurationFailed(f"{str(path.parent)!r} is a file, no folder.") from None
            yield path, False
        except OSError as error:
            raise ConfigurationFailed(f"{str(path)!r} cannot be written: {error}") from error
        else:
            yield path, True


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        elif entry.name.endswith((".yaml", ".md")):
            yield name, entry.read_text(encoding="utf-8")
