"""From a Python function to what a model is told of it."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from copilot_runtime.actions import action
from copilot_runtime.actions.functions import as_actions
from copilot_runtime.api import Action, ActionContext
from copilot_runtime.base.errors import ConfigurationFailed
from tests.in_one_test import in_one_test


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict):
    city: str


@dataclass
class Size:
    width: int
    unit: Literal["cm"] = "cm"


class Tree(BaseModel):
    title: str
    children: list["Tree"] = []


def get_time(city: str) -> str:
    """Get the time in a city.

    Args:
        city: City name
    """
    return f"12:00 in {city}"


def search(
    when: date,
    colour: Colour,
    place: Place,
    sizes: list[Size],
    context: ActionContext,
    json: bool = False,
    limit: Annotated[int, Field(ge=1, description="At most.")] = 3,
    note: str | None = None,
    _private: str = Field("x", max_length=3),
) -> str:
    return f"{when!r} {colour} {place} {sizes} {context.call_id} {json} {limit} {note} {_private}"


GET_TIME = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "City name"}},
    "required": ["city"],
}


def test_a_function_becomes_what_the_node_runtime_sends() -> None:
    made = action(get_time)

    assert (made.name, made.description) == ("get_time", "Get the time in a city.")
    assert made.parameters == GET_TIME


def test_no_parameters_are_an_empty_object() -> None:
    @action
    def ping() -> None: ...

    assert ping.parameters == {"type": "object", "properties": {}, "required": []}


def test_every_kind_of_type_is_written_out_in_place() -> None:
    size = {
        "type": "object",
        "properties": {
            "width": {"type": "integer"},
            "unit": {"type": "string", "enum": ["cm"], "default": "cm"},
        },
        "required": ["width"],
    }
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert action(search).parameters == {
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date"},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "place": place,
            "sizes": {"type": "array", "items": size},
            "json": {"type": "boolean", "default": False},
            "limit": {"type": "integer", "description": "At most.", "minimum": 1, "default": 3},
            "note": {"type": "string"},
            "_private": {"type": "string", "maxLength": 3, "default": "x"},
        },
        "required": ["when", "colour", "place", "sizes"],
    }


def test_a_type_that_contains_itself_keeps_its_definition() -> None:
    @action
    def plant(tree: Tree) -> None: ...

    assert plant.parameters == {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}},
        "required": ["tree"],
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "children": {
                        "type": "array",
                        "items": {"$ref": "#/$defs/Tree"},
                        "default": [],
                    },
                },
                "required": ["title"],
            }
        },
    }


def test_types_that_would_grow_without_end_are_not_written_out() -> None:
    model: Any = int
    for depth in range(20):
        name = f"Level{depth}"
        model = type(name, (BaseModel,), {"__annotations__": {"left": model, "right": model}})

    def grow(top: Any) -> None: ...

    grow.__annotations__["top"] = model

    assert len(str(action(grow).parameters)) < 10_000


GOOGLE = """Say it.

More words.

Args:
    what (str): The words
        to say.
    loud: How.

Returns:
    what: no
"""
NUMPY = """Say it.

Parameters
----------
what : str
    The words
    to say.
loud
    How.

Returns
-------
what
    no
"""
REST = """Say it.

:param str what: The words
    to say.
:param loud: How.
:returns: no
"""
TIGHT_GOOGLE = "Say it.\nReturns:\n  no\nArgs:\n  what: The words to say.\n  loud: How.\n"
TIGHT_REST = "Say it.\n:param what: The words to say.\n:param loud: How."


@in_one_test("doc", [GOOGLE, NUMPY, REST, TIGHT_GOOGLE, TIGHT_REST])
def test_a_docstring_describes_the_action_and_its_parameters(doc: str) -> None:
    def say(what: str, loud: bool) -> None: ...

    say.__doc__ = doc
    made = action(say)

    assert made.description == "Say it."
    words = {key: value["description"] for key, value in made.parameters["properties"].items()}
    assert words == {"what": "The words to say.", "loud": "How."}


def test_what_the_decorator_is_given_wins() -> None:
    @action(name="shout", description="Loud.", timeout=2, return_direct=True)
    def say() -> None:
        """Quiet."""

    assert (say.name, say.description, say.timeout, say.return_direct) == (
        "shout",
        "Loud.",
        2,
        True,
    )


def test_a_schema_by_hand_is_sent_as_it_is() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}

    @action(parameters=schema)
    def move(**values: Any) -> None: ...

    assert move.parameters == schema


class Clock:
    def now(self, city: str) -> str:
        return city

    def __call__(self, city: str) -> str:
        """Tell the time."""
        return city


@in_one_test(
    ("function", "name"),
    [(Clock().now, "now"), (Clock(), "Clock"), (partial(get_time), "get_time")],
    ids=["a bound method", "a callable object", "a partial"],
)
def test_anything_that_can_be_called_becomes_an_action(
    function: Callable[..., Any], name: str
) -> None:
    made = action(function)

    assert (made.name, [*made.parameters["properties"]]) == (name, ["city"])


def test_what_a_partial_has_bound_is_not_shown_to_the_model() -> None:
    def find(database: object, what: str) -> None: ...

    assert [*action(partial(find, database=object())).parameters["properties"]] == ["what"]


def _any(*items: int) -> None: ...
def _named(**items: int) -> None: ...
def _positional(item: int, /) -> None: ...
def _callback(item: Callable[[], int]) -> None: ...
def _plain(item: Clock) -> None: ...
def _yields() -> Iterator[int]:
    yield 1


@in_one_test(
    ("function", "words"),
    [
        (_any, "'items' takes any number of values"),
        (_named, "'items' takes any name"),
        (_positional, "'item' is positional-only"),
        (_callback, "type of its parameter 'item' has no JSON schema"),
        (_plain, "type of its parameter 'item' has no JSON schema"),
        (Clock.now, "'self' has no object"),
        (_yields, "it yields instead of returning"),
        (lambda: None, "'<lambda>' cannot be the name of an action"),
        (3, "An action is a function"),
    ],
)
def test_a_function_no_model_can_call_is_refused_when_it_is_decorated(
    function: Any, words: str
) -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        action(function)

    assert words in caught.value.message
    where = getattr(function, "__qualname__", "builtins.int")
    assert where in caught.value.message


def test_an_annotation_nobody_knows_is_refused_with_its_name() -> None:
    def find(item: int) -> None: ...

    find.__annotations__["item"] = "Unheard"
    with pytest.raises(ConfigurationFailed, match="'Unheard' is not defined"):
        action(find)


@in_one_test(
    ("schema", "words"),
    [
        ({"type": "string"}, "must be the JSON schema of an object"),
        ({"properties": {"town": {}}}, "has no parameter 'town'"),
        ({"properties": {}}, "needs 'city'"),
    ],
)
def test_a_schema_that_does_not_fit_the_function_is_refused(
    schema: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationFailed, match=words):
        action(parameters=schema)(get_time)


@in_one_test("timeout", [0, -1, float("nan")])
def test_a_timeout_that_never_waits_is_refused(timeout: float) -> None:
    with pytest.raises(ConfigurationFailed, match="must be more than 0 s"):
        action(timeout=timeout)(get_time)


def test_functions_and_actions_may_be_mixed() -> None:
    by_hand = Action(name="by_hand", run=None)

    made = as_actions([get_time, action(search), by_hand])

    assert [item.name for item in made] == ["get_time", "search", "by_hand"]
    assert made[2] is by_hand


def test_two_actions_of_one_name_are_refused_with_both_places() -> None:
    with pytest.raises(ConfigurationFailed) as caught:
        as_actions([get_time, action(name="get_time")(search)])

    assert caught.value.message == (
        "Two actions are named 'get_time': "
        "tests.actions.test_functions.get_time and tests.actions.test_functions.search."
    )


def test_importing_the_package_does_not_load_pydantic() -> None:
    code = "import sys, copilot_runtime.actions; sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def give(made: Action, values: dict[str, Any], context: ActionContext) -> Any:
    assert made.run is not None
    return await made.run(values, context)


@pytest.mark.anyio
async def test_a_function_gets_python_values_for_what_the_model_sent(
    context: ActionContext,
) -> None:
    sent = {
        "when": "2026-01-02",
        "colour": "blue",
        "place": {"city": "Paris"},
        "sizes": [{"width": 3}],
        "limit": "7",
        "note": None,
    }

    assert await give(action(search), sent, context) == (
        "datetime.date(2026, 1, 2) Colour.BLUE {'city': 'Paris'} [Size(width=3, unit='cm')]"
        " c False 7 None x"
    )


@pytest.mark.anyio
async def test_an_alias_is_the_name_a_model_knows(context: ActionContext) -> None:
    @action
    async def fly(from_: Annotated[str, Field(alias="from")], to: str = "Rome") -> list[str]:
        return [from_, to]

    assert [*fly.parameters["properties"]] == ["from", "to"]
    assert await give(fly, {"from": "Paris"}, context) == ["Paris", "Rome"]


@pytest.mark.anyio
async def test_the_context_may_have_any_name_and_be_optional(context: ActionContext) -> None:
    @action
    def who(request: ActionContext | None = None) -> Any:
        return request and request.properties["user"]

    assert who.parameters["properties"] == {}
    assert await give(who, {}, context) == "ann"


@pytest.mark.anyio
async def test_a_model_cannot_send_the_context_itself(context: ActionContext) -> None:
    @action
    def who(word: str, request: ActionContext) -> Any:
        return request.properties["user"]

    with pytest.raises(ValueError, match="request: there is no such argument"):
        await give(who, {"word": "x", "request": {"properties": {"user": "eve"}}}, context)


@pytest.mark.anyio
async def test_a_function_with_a_schema_by_hand_gets_what_was_sent(context: ActionContext) -> None:
    @action(parameters={"properties": {"x": {"type": "number"}}})
    def move(**values: Any) -> Any:
        return values

    assert await give(move, {"x": 1, "y": 2}, context) == {"x": 1, "y": 2}


def test_a_function_under_the_decorator_can_be_called() -> None:
    @action
    def get_weather(city: str, days: int = 1) -> str:
        """Look out of the window."""
        return f"{city}: {days}"

    assert get_weather("Oslo", days=2) == "Oslo: 2"
    assert str(inspect.signature(get_weather)) == "(city: str, days: int = 1) -> str"


@pytest.mark.anyio
async def test_an_async_function_under_the_decorator_with_options_can_be_called() -> None:
    @action(name="weather", timeout=3)
    async def get_weather(city: str) -> str:
        return city

    assert await get_weather(city="Oslo") == "Oslo"


@pytest.mark.anyio
async def test_an_action_can_be_made_an_action_of_another_name() -> None:
    @action
    async def get_weather(city: str) -> str:
        """Look out of the window."""
        return city

    renamed = action(name="weather")(get_weather)

    assert (renamed.name, renamed.description) == ("weather", "Look out of the window.")
    assert await renamed("Oslo") == "Oslo"
