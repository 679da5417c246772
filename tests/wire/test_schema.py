"""Our schema has everything of the recorded one; it may have more."""

import asyncio
from pathlib import Path

import pytest
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLUnionType,
    Undefined,
    build_client_schema,
    build_schema,
    get_introspection_query,
    is_specified_scalar_type,
)

from copilot_runtime import CopilotRuntime
from copilot_runtime.adapters.empty import EmptyAdapter
from tests.in_one_test import in_one_test
from tests.wire.client import client_of

NODE = build_schema(
    (Path(__file__).parent / "node" / "schema.graphql").read_text(), assume_valid_sdl=True
)
NAMES = sorted(
    name
    for name, kind in NODE.type_map.items()
    if not name.startswith("__") and not is_specified_scalar_type(kind)
)


@pytest.fixture(scope="module")
def ours() -> GraphQLSchema:
    return asyncio.run(introspect())


async def introspect() -> GraphQLSchema:
    question = {"query": get_introspection_query(input_value_deprecation=True)}
    async with client_of(CopilotRuntime(adapter=EmptyAdapter())) as client:
        answer = await client.ask(question)
    return build_client_schema(answer.json()["data"])


def facts(kind: GraphQLNamedType) -> set[str]:
    """Return what a client may rely on, one sentence each."""
    match kind:
        case GraphQLEnumType():
            return set(kind.values)
        case GraphQLInputObjectType():
            return {
                f"{name}: {field.type} = {field.default_value!r}"
                if field.default_value is not Undefined
                else f"{name}: {field.type}"
                for name, field in kind.fields.items()
            }
        case GraphQLUnionType():
            return {member.name for member in kind.types}
        case GraphQLObjectType() | GraphQLInterfaceType():
            found = {f"is {interface.name}" for interface in kind.interfaces}
            for name, field in kind.fields.items():
                arguments = ", ".join(sorted(f"{arg}: {it.type}" for arg, it in field.args.items()))
                found.add(f"{name}({arguments}): {field.type}")
            return found
        case _:
            return set()


@in_one_test("name", NAMES)
def test_a_type_has_the_names_nullability_and_defaults_of_node(
    ours: GraphQLSchema, name: str
) -> None:
    theirs, mine = NODE.type_map[name], ours.type_map.get(name)

    assert mine is not None
    assert type(mine) is type(theirs)
    assert facts(theirs) - facts(mine) == set()


@in_one_test("name", NAMES)
def test_nothing_we_add_to_an_input_is_required(ours: GraphQLSchema, name: str) -> None:
    theirs, mine = NODE.type_map[name], ours.type_map[name]
    if not isinstance(theirs, GraphQLInputObjectType):
        return
    assert isinstance(mine, GraphQLInputObjectType)

    added = [field for name, field in mine.fields.items() if name not in theirs.fields]

    assert not [field for field in added if str(field.type).endswith("!")]


@in_one_test("name", ["defer", "stream"])
def test_the_directives_are_those_of_node(ours: GraphQLSchema, name: str) -> None:
    theirs, mine = NODE.get_directive(name), ours.get_directive(name)

    assert theirs and mine
    assert {arg: str(it.type) for arg, it in theirs.args.items()}.items() <= {
        arg: str(it.type) for arg, it in mine.args.items()
    }.items()
    assert set(theirs.locations) == set(mine.locations)
