"""What tests want of npm is made once, and anew when its sources change."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from tests.npm import once

Wanted = Callable[[], int]
"""Wants the folder, and returns how often it was made by now."""


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    made, source, makings = tmp_path / "made", tmp_path / "source", list[str]()
    source.write_text("first")

    def make() -> None:
        makings.append(source.read_text())
        made.mkdir(exist_ok=True)
        if makings[-1] == "broken":
            raise OSError("no space left")

    def want() -> int:
        once(made, [source], make)
        return len(makings)

    return want


def test_what_is_there_is_not_made_again(wanted: Wanted) -> None:
    assert [wanted(), wanted()] == [1, 1]


def test_a_changed_source_makes_it_anew(wanted: Wanted, tmp_path: Path) -> None:
    wanted()
    (tmp_path / "source").write_text("second")

    assert wanted() == 2


def test_what_broke_half_way_is_made_again(wanted: Wanted, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("broken")
    with pytest.raises(OSError, match="no space"):
        wanted()
    with pytest.raises(OSError, match="no space"):
        wanted()


def test_those_who_want_it_at_the_same_time_wait_for_the_one_who_makes_it(tmp_path: Path) -> None:
    made, source, makings = tmp_path / "made", tmp_path / "source", list[str]()
    source.write_text("first")
    together, both = Barrier(2), Barrier(2)

    def make() -> None:
        makings.append("one")
        made.mkdir(exist_ok=True)
        with suppress(BrokenBarrierError):  # a second one would come in at once
            both.wait(timeout=0.3)

    def want() -> None:
        together.wait()
        once(made, [source], make)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(want), pool.submit(want)]:
            each.result()

    assert makings == ["one"]


def test_what_is_made_of_the_same_source_may_be_made_on_the_way(tmp_path: Path) -> None:
    page, modules, source = tmp_path / "page", tmp_path / "modules", tmp_path / "source"
    source.write_text("first")

    def make() -> None:
        once(modules, [source], modules.mkdir)
        page.mkdir()

    once(page, [source], make)

    assert page.exists()
    assert modules.exists()
