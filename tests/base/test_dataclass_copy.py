"""Dataclasses that are built and copied at once."""

from dataclasses import dataclass

from copilot_runtime.api.identity import Identity
from copilot_runtime.api.run_input import RunInput, new_run_input
from copilot_runtime.base.dataclass_copy import copy_with


@dataclass(frozen=True, slots=True, kw_only=True)
class Employee(Identity):
    badge: str = ""


def test_a_copy_of_an_applications_own_class_keeps_its_fields() -> None:
    employee = Employee(user="ann", badge="7")

    assert copy_with(employee, roles=("admin",)) == Employee(
        user="ann", badge="7", roles=("admin",)
    )


def test_a_run_built_at_once_equals_one_of_its_class() -> None:
    built = new_run_input(thread_id="t", run_id="r", messages=[], persist=True)

    assert built == RunInput(thread_id="t", run_id="r", messages=[], persist=True)
