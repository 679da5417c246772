"""The simulation of many machines: its arithmetic on cases small enough for a head."""

from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.scale.simulation import (
    Costs,
    Return,
    Site,
    count_entries,
    count_flushes,
    find_commit_delay,
    find_limit,
    list_uses,
    main,
    simulate_return,
)

NOTHING = dict.fromkeys((field.name for field in fields(Costs)), 0.0)
ALONE = Site(machines=1, cores=1, threads=100, ask_every=10, answer=1, chunks=20, elsewhere=0)
"""Ten questions a second, ten answers under way, 200 chunks a second."""


def test_costs_that_were_measured_are_read_as_seconds_and_bytes() -> None:
    costs = Costs.load()

    assert 1e-6 < costs.chunk_run < 1e-4
    assert 1e3 < costs.open_stream < 1e6


def test_a_process_is_used_by_its_chunks_and_its_questions() -> None:
    costs = Costs(**{**NOTHING, "chunk_run": 0.001, "start": 0.01, "commits": 1.0})
    use = next(it for it in list_uses(ALONE, costs) if it.resource == "CPU of the servers")

    assert (use.asked, use.limit) == (pytest.approx(0.3), 1)
    assert find_limit(ALONE, costs, use.resource) == pytest.approx(100 / 0.3, rel=0.01)


def test_few_chunks_are_a_commit_each_and_many_are_two_hundred_a_second() -> None:
    assert count_flushes(0.1) == pytest.approx(0.1, rel=0.01)
    assert count_flushes(100_000) == pytest.approx(200)


def test_an_entry_for_each_pair_of_processes_that_has_something() -> None:
    assert count_entries(1, 500) == 0
    assert count_entries(2, 1_000_000) == pytest.approx(400)
    assert count_entries(100, 99) == pytest.approx(99, rel=0.01)


def test_processes_that_wait_for_commits_wait_for_each_other() -> None:
    costs = Costs(**{**NOTHING, "commits": 1000.0})

    assert find_commit_delay(Site(machines=2, cores=2), costs) == 0.005
    assert find_commit_delay(Site(machines=100, cores=2), costs) == 0.2


def test_those_who_come_back_at_once_wait_for_each_other() -> None:
    costs = Costs(**{**NOTHING, "connect": 1.0, "commits": 1.0})
    back = Return(at=1, threads=10, over=1)
    delays = simulate_return(ALONE, costs, back, 15)["CPU of the servers"]

    assert delays[9] == 0
    assert max(delays) == pytest.approx(9)
    assert delays[-1] == 0


def test_it_says_what_ends_first_and_draws_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chart = tmp_path / "chart.svg"
    monkeypatch.setattr("sys.argv", ["simulation", "--chart", str(chart)])
    main()

    assert "First ends: connections of PostgreSQL" in capsys.readouterr().out
    assert chart.read_text().endswith("</svg>\n")
