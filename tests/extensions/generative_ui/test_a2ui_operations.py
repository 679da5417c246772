"""Operations of A2UI are checked before a page gets them."""

from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    check_operations,
    create_surface,
    delete_surface,
    group_by_surface,
    update_components,
    update_data_model,
)
from tests.in_one_test import in_one_test

ROOT = {"id": "root", "component": "Text", "text": "Hi"}


def test_operations_that_this_runtime_writes_have_no_problem() -> None:
    operations = [
        create_surface("a"),
        update_components("a", [ROOT]),
        update_data_model("a", {"n": 1}),
        delete_surface("a"),
    ]
    assert check_operations(operations) is None


def test_a_component_may_change_without_its_type_and_the_version_may_be_left_out() -> None:
    change = {"surfaceId": "a", "components": [{"id": "root", "text": "Bye"}]}
    assert check_operations([{"updateComponents": change}]) is None


def test_operations_are_grouped_by_surface_in_their_order() -> None:
    first, second, third = create_surface("a"), create_surface("b"), delete_surface("a")
    assert group_by_surface([first, second, third]) == {"a": [first, third], "b": [second]}


@in_one_test(
    ("operations", "problem"),
    [
        ({}, "a2ui_operations is no array."),
        ([1], "a2ui_operations[0] is no object."),
        (
            [create_surface("a"), {"version": "v0.8", "createSurface": {"surfaceId": "a"}}],
            "a2ui_operations[1] is of version 'v0.8', and pages draw 'v0.9'.",
        ),
        (
            [{"version": "v0.9", "foo": {}}],
            "a2ui_operations[0] needs exactly one of createSurface, deleteSurface, "
            "updateComponents, updateDataModel.",
        ),
        (
            [{"version": "v0.9", "createSurface": []}],
            "a2ui_operations[0] has a createSurface that is no object.",
        ),
        (
            [{"version": "v0.9", "deleteSurface": {"surfaceId": ""}}],
            "a2ui_operations[0] has a deleteSurface without surfaceId.",
        ),
        (
            [update_components("a", [{"component": "Text"}])],
            "a2ui_operations[0] has an updateComponents whose components are no array of "
            "objects with an id.",
        ),
    ],
)
def test_a_problem_names_its_place(operations: object, problem: str) -> None:
    assert check_operations(operations) == problem


def test_more_operations_than_the_bound_are_refused() -> None:
    assert check_operations([create_surface("a")] * 3, max_operations=2) == (
        "a2ui_operations has 3 operations; at most 2 are drawn."
    )
