"""Frozen dataclasses without slots that are made and copied fast.

A run has thirty fields, and is copied several times.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Copied = TypeVar("Copied", bound="DataclassInstance")
Built = TypeVar("Built")
Fields = ParamSpec("Fields")


def make_builder(kind: Callable[Fields, Built]) -> Callable[Fields, Built]:
    """Return a function that builds a frozen dataclass without slots from its keyword fields.

    The `__init__` of such a dataclass takes about 1,000 instructions for each field. Field names
    are not checked.
    """
    members = fields(cast("type[DataclassInstance]", kind))
    defaults = {one.name: one.default for one in members if one.default is not MISSING}
    every: Any = {one.name: one.default_factory for one in members}
    factories = {name: make for name, make in every.items() if make is not MISSING}
    finish: Any = vars(kind).get("__post_init__")

    def build(*_: Fields.args, **values: Fields.kwargs) -> Built:
        built = object.__new__(cast("type[Built]", kind))
        state = {**defaults, **values}
        for name in factories.keys() - values.keys():
            state[name] = factories[name]()
        object.__setattr__(built, "__dict__", state)
        if finish is not None:
            finish(built)
        return built

    return build


def copy_with(value: Copied, **changes: Any) -> Copied:
    """Return a copy with some fields replaced; a faster `dataclasses.replace`.

    Field names are not checked, and `__post_init__` is not called, unless a subclass has slots.
    """
    if "__slots__" in type(value).__dict__:
        return replace(value, **changes)
    copy = object.__new__(type(value))
    object.__setattr__(copy, "__dict__", {**value.__dict__, **changes})  # copies the table at once
    return copy
