"""Cases in one test all run, are shown if they fail, and do not see each other's fixtures."""

from pathlib import Path

import pytest

from tests.in_one_test import in_one_test, in_sum


def test_all_cases_that_fail_are_listed() -> None:
    @in_one_test("a, b", [(1, 1), (1, 2), pytest.param(3, 4, id="x"), (5, 5)])
    def check(a: int, b: int) -> None:
        assert a == b

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed") as error:
        check()
    assert [it.__notes__ for it in error.value.exceptions] == [
        ["the case: a=1, b=2"],
        ["the case: a=3, b=4"],
    ]


def test_a_failure_of_pytest_is_one() -> None:
    @in_one_test("a", [1, 2])
    def check(a: int) -> None:
        if a == 1:
            with pytest.raises(ValueError):
                pass

    with pytest.raises(pytest.fail.Exception):
        check()


@in_one_test("count", [1, 2])
def test_a_test_is_skipped_if_all_of_its_cases_are(count: int) -> None:
    @in_one_test("a", [1, 2])
    def check(a: int) -> None:
        if a <= count:
            pytest.skip("no")

    if count == 1:
        check()
    else:
        with pytest.raises(pytest.skip.Exception):
            check()


@in_one_test("a", [1, 2])
@in_one_test("b", [1, 2])
def test_each_case_has_a_folder_of_its_own(a: int, b: int, tmp_path: Path) -> None:
    assert not list(tmp_path.iterdir())
    (tmp_path / "x").touch()


@in_one_test("value", [1, 2])
def test_a_patch_is_undone_after_its_case(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hasattr(Path, "no_such_name")
    monkeypatch.setattr(Path, "no_such_name", value, raising=False)


def test_a_sum_has_each_value_beside_the_first_of_the_others() -> None:
    assert [*in_sum("ab", (1, 2, 3))] == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
