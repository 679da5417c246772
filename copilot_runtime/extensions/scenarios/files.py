"""Find and parse scenario files."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.yaml_model import list_lines, parse_yaml_model
from copilot_runtime.extensions.scenarios.definition import Scenario, ScenarioFile

ENDINGS = (".test.yml", ".test.yaml")
"""Suffixes of scenario files in a folder. Files that are named explicitly may have any."""

_ELSEWHERE = {"node_modules", "__pycache__"}
_LARGEST = 4_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A scenario and its location."""

    path: str
    line: int
    scenario: Scenario

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def load_scenarios(paths: Sequence[Path]) -> list[Place]:
    """Return all scenarios of files and folders; the files of a folder are sorted by name.

    Raises `ConfigurationFailed` with the errors of all files, or if there is no scenario.
    """
    files = list(dict.fromkeys(file for path in paths for file in _list_files(path)))
    found: list[Place] = []
    mistakes: list[str] = []
    for file in files:
        try:
            found += _read_file(file)
        except ConfigurationFailed as error:
            mistakes.append(error.message)
    if mistakes:
        raise ConfigurationFailed("\n".join(mistakes))
    return found


def _list_files(path: Path) -> Sequence[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigurationFailed(f"There is no file or folder '{path}'.{_guess(path)}")
    files = sorted(_walk(path))
    if not files:
        raise ConfigurationFailed(
            f"The folder '{path}' has no scenarios: no file ends with {' or '.join(ENDINGS)}.",
            hint="Write one, such as chat.test.yml, or name files: copilot-runtime test FILE.",
        )
    return files


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(it for it in folders if it[0] != "." and it not in _ELSEWHERE)
        yield from (Path(root, name) for name in names if name.endswith(ENDINGS))


def _guess(path: Path) -> str:
    names = [it.name for it in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, names, n=1)
    return f" Did you mean '{path.with_name(close[0])}'?" if close else ""


def _read_file(path: Path) -> list[Place]:
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigurationFailed(f"{path}:1: the file has more than {_LARGEST:,} bytes.")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigurationFailed(f"{path}:1: the file is not UTF-8 text.") from None
    except OSError as error:
        raise ConfigurationFailed(f"{path}:1: {error.strerror or error}.") from error
    name = path.as_posix()
    file = parse_yaml_model(ScenarioFile, text, name)
    places = zip(list_lines(text, "scenarios"), file.list_scenarios(), strict=True)
    return [Place(name, line, scenario) for line, scenario in places]
