"""Frozen dataclasses without slots that are made and copied fast.

A run has thirty fields, and is copied several times.
"""

from dataclasses import MISSING, fields, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Copied = TypeVar("Copied", bound="DataclassInstance")


def fill_at_once(kind: type[Copied]) -> type[Copied]:
    """Decorate a frozen dataclass with keyword fields and without slots: set all fields at once.

    The `__init__` of `dataclasses` takes 1,000 instructions for each field.
    """
    slow, members = kind.__init__, fields(kind)
    defaults = {one.name: one.default for one in members if one.default is not MISSING}
    makers: Any = [(one.name, one.default_factory) for one in members]
    makers = [(name, make) for name, make in makers if make is not MISSING]
    required = {one.name for one in members} - defaults.keys() - dict(makers).keys()
    finish: Any = getattr(kind, "__post_init__", None)

    @wraps(slow)
    def fill(self: Any, **values: Any) -> None:
        state = {**defaults, **values}
        for name, make in makers:
            if name not in values:
                state[name] = make()
        if len(state) != len(members) or not required <= values.keys():
            slow(self, **values)  # raises a `TypeError` that names the fields
        object.__setattr__(self, "__dict__", state)
        if finish is not None:
            finish(self)

    kind.__init__ = cast("Any", fill)
    return kind


def copy_with(value: Copied, **changes: Any) -> Copied:
    """Return a copy with some fields replaced; a faster `dataclasses.replace`.

    Field names are not checked, and `__post_init__` is not called, unless a subclass has slots.
    """
    if "__slots__" in type(value).__dict__:
        return replace(value, **changes)
    copy = object.__new__(type(value))
    copy.__dict__.update(value.__dict__, **changes)
    return copy
