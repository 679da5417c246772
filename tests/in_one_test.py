"""Runs the cases of one claim in one test: `@in_one_test` has the signature of `parametrize`.

All cases run, and the error lists each that fails with its values. The fixtures of pytest are
shared, but every case gets a `tmp_path` of its own and a `monkeypatch` that is undone after it,
`caplog`, `recwarn`, `capsys` and `capfd` are cleared before it, and a fixture with a method
`forget` is reset by it. A fixture with other state needs `parametrize`.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]
Case = Mapping[str, Any]
Ids = Iterable[object] | Callable[[Any], object] | None


def in_one_test(
    names: str | Sequence[str], values: Iterable[Any], *, ids: Ids = None
) -> Callable[[Test], Test]:
    """Run a test with each of the values, as one item. Errors show the values in place of `ids`."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [_name_values(columns, value) for value in values]
    assert cases, "a test without a case"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        fixtures = [it for name, it in signature.parameters.items() if name not in columns]

        async def run_async(**arguments: Any) -> None:
            errors: list[BaseException] = []
            for number, case in enumerate(cases):
                with _collect_error(errors, case), _reset(arguments, number) as fresh:
                    await test(**fresh, **case)
            _raise_errors(errors, len(cases))

        def run(**arguments: Any) -> None:
            errors: list[BaseException] = []
            for number, case in enumerate(cases):
                with _collect_error(errors, case), _reset(arguments, number) as fresh:
                    test(**fresh, **case)
            _raise_errors(errors, len(cases))

        runner: Any = run_async if inspect.iscoroutinefunction(test) else run
        functools.update_wrapper(runner, test)
        runner.__signature__ = signature.replace(parameters=fixtures)
        return runner

    return decorate


def in_sum(*lists: Iterable[Any]) -> Generator[tuple[Any, ...], None, None]:
    """Yield each value of each list once, beside the first values of the others: no product."""
    columns = [[*values] for values in lists]
    firsts = tuple(values[0] for values in columns)
    yield firsts
    for column, values in enumerate(columns):
        for value in values[1:]:
            yield (*firsts[:column], value, *firsts[column + 1 :])


def _name_values(names: Sequence[str], value: Any) -> Case:
    if hasattr(value, "marks") and hasattr(value, "values"):  # pytest.param
        assert not value.marks, "a case with a mark needs parametrize"
        return dict(zip(names, value.values, strict=True))
    return dict(zip(names, value if len(names) > 1 else [value], strict=True))


@contextmanager
def _collect_error(errors: list[BaseException], case: Case) -> Generator[None, None, None]:
    try:
        yield
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
        error.add_note(f"the case: {', '.join(f'{k}={v!r}'[:300] for k, v in case.items())}")
        errors.append(error)


@contextmanager
def _reset(arguments: Case, number: int) -> Generator[Case, None, None]:
    """Yield the fixtures for one case, without what earlier ones left in them."""
    fixtures = dict(arguments)
    if "tmp_path" in fixtures:
        fixtures["tmp_path"] /= f"case-{number}"
        fixtures["tmp_path"].mkdir()
    for name in ("caplog", "recwarn"):
        if name in fixtures:
            fixtures[name].clear()
    for name in ("capsys", "capfd"):
        if name in fixtures:
            fixtures[name].readouterr()
    for fixture in fixtures.values():
        if hasattr(fixture, "forget"):
            fixture.forget()
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in fixtures:
            fixtures["monkeypatch"] = patch
        yield fixtures


def _raise_errors(errors: Sequence[BaseException], count: int) -> None:
    """Raise what failed; a case that skips counts only if all do."""
    skips = [error for error in errors if isinstance(error, pytest.skip.Exception)]
    failures = [error for error in errors if error not in skips]
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {count} cases failed", failures)
    if len(skips) == count:
        raise skips[0]
