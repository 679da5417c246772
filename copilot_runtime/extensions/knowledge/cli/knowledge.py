"""`copilot-runtime knowledge search`, `graph`, `ontology`, `memory`: query what a server knows.

They open the knowledge of the same settings as `serve`, also while servers use it.
"""

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.knowledge.cli import (
    ActorOption,
    LimitOption,
    PrefixOption,
    StorageOption,
    TypeOption,
    make_actor,
    run_with_knowledge,
)

if TYPE_CHECKING:
    from copilot_runtime.api.retrieval import Passage
    from copilot_runtime.extensions.knowledge.access import Actor
    from copilot_runtime.extensions.knowledge.graph.ontology import OntologyClass
    from copilot_runtime.extensions.knowledge.identifiers import Identifier

_WIDTH = 100
_PLAIN_TYPES = frozenset(
    f"xsd:{name}" for name in ("integer", "decimal", "double", "boolean", "date", "dateTime")
)
"""Datatypes that are recognised from the literal itself."""
_PREDICATES = "SELECT DISTINCT ?p { ?s ?p ?o }"
_NO_MEMORIES = (
    "There are no memories. Chats are stored as threads instead: see "
    "`copilot-runtime operate threads list`."
)


def search(
    text: Annotated[list[str], typer.Argument(help="Search texts, each in quotes.")],
    limit: LimitOption = 10,
    type: TypeOption = "",
    prefix: PrefixOption = "",
    threshold: Annotated[float | None, typer.Option(min=-1, max=1, help="Minimum score.")] = None,
    as_user: ActorOption = None,
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Search resources by meaning: one per line, with score, title, text and URI.

    \b
    copilot-runtime knowledge search 'When is the library open?'
    copilot-runtime knowledge search 'opening hours' 'closed on Sundays' --limit 3
    copilot-runtime knowledge search budget --as ann --json

    With several texts, a resource has its best score of any of them. `knowledge ingest` adds
    documents. This command, `graph`, `ontology` and `memory` read the knowledge of copilot.yml and
    the environment, or of a program named by --program.
    """

    async def work(knowledge: "lazy.Knowledge") -> None:
        await knowledge.embedder.check_key()
        found = await knowledge.search(
            text,
            actor=make_actor(as_user),
            type=type,
            prefix=prefix,
            threshold=threshold,
            limit=limit,
        )
        if not found:
            await _require_vectors(knowledge)
        if as_json:
            show_json({"results": [*map(encode_passage, found)]})
            return
        head = ("SCORE", "TITLE", "TEXT", "RESOURCE")
        show_table(head, [_row(passage) for passage in found], "Nothing was found.")

    run_with_knowledge(program, config, storage, work)


def graph(
    pattern: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUBJECT PREDICATE OBJECT]", help="A pattern; ? is a wildcard."),
    ] = None,
    sparql: Annotated[
        str | None, typer.Option(help="A read-only SPARQL query, or - for standard input.")
    ] = None,
    limit: LimitOption = 50,
    as_user: ActorOption = None,
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Query the graph by a pattern of subject, predicate and object, or by SPARQL.

    \b
    copilot-runtime knowledge graph ? rdf:type schema:Person
    copilot-runtime knowledge graph ? schema:name '"Ada Lovelace"'
    copilot-runtime knowledge graph --sparql 'SELECT ?name WHERE { ?who schema:name ?name }'

    IRIs are written in full or with a prefix (schema, rdf, rdfs, foaf); literals in double quotes.
    Quote ? if your shell expands it as a file name pattern.
    """
    parts = _split_pattern(pattern or [])
    if (sparql is None) == (not parts) or (parts and len(parts) != 3):
        raise ConfigurationFailed(
            "A query is a pattern of three parts, or --sparql.",
            hint="For example: copilot-runtime knowledge graph '?' rdf:type schema:Person",
        )

    async def work(knowledge: "lazy.Knowledge") -> None:
        actor = make_actor(as_user)
        if sparql is not None:
            query = sys.stdin.read() if sparql == "-" else sparql
            await _show_sparql(knowledge, query, actor, limit, as_json)
            return
        triples = await knowledge.triples((parts[0], parts[1], parts[2]), actor=actor, limit=limit)
        if not triples:
            await _require_resources(knowledge)
        if as_json:
            show_json({"triples": triples})
        else:
            guess = "" if triples else await _guess_predicate(knowledge, parts[1], actor)
            guess = guess or knowledge.graph.prefixes.describe_unknown(*parts)
            nothing = f"No triple fits the pattern. {guess}".strip()
            _show_terms(knowledge, ("SUBJECT", "PREDICATE", "OBJECT"), triples, nothing)

    run_with_knowledge(program, config, storage, work)


def ontology(
    svg: Annotated[bool, typer.Option("--svg", help="Write the ontology as an SVG image.")] = False,
    ttl: Annotated[bool, typer.Option("--ttl", help="Write SHACL shapes in Turtle.")] = False,
    as_user: ActorOption = None,
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the vocabulary of the graph: its classes, and how many things are of each.

    \b
    copilot-runtime knowledge ontology
    copilot-runtime knowledge ontology --ttl > ontology.ttl
    copilot-runtime knowledge ontology --svg > ontology.svg
    """
    if svg + ttl + as_json > 1:
        raise ConfigurationFailed("Only one of --svg, --ttl and --json can be written.")

    async def work(knowledge: "lazy.Knowledge") -> None:
        actor = make_actor(as_user)
        classes = (await knowledge.ontology(actor=actor)).classes
        if not classes:
            await _require_resources(knowledge)
        if svg:
            typer.echo(await knowledge.picture(actor=actor))
            return
        if ttl:
            typer.echo(await knowledge.ontology_turtle(actor=actor), nl=False)
            return
        if as_json:
            show_json({"classes": [_encode_class(each) for each in classes]})
            return
        rows = [(it.name, it.instances, ", ".join(_own_properties(it))) for it in classes]
        show_table(("CLASS", "INSTANCES", "PROPERTIES"), rows, "There are no classes yet.")

    run_with_knowledge(program, config, storage, work)


def memory(
    conversation: Annotated[
        str | None, typer.Argument(help="URI of a conversation; default: list all.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="Show the items that fit a token budget.")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the memory, but not the resources.")
    ] = False,
    as_user: ActorOption = None,
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the memory of a conversation, and the part of it that a model would read.

    \b
    copilot-runtime knowledge memory
    copilot-runtime knowledge memory common.User.ann/common.Conversation.t1
    copilot-runtime knowledge memory common.User.ann/common.Conversation.t1 --budget 4000 --json

    Memories are written by programs. Chats are stored as threads instead: see `copilot-runtime
    operate threads list`.
    """
    if conversation is None and (forget or budget is not None):
        raise ConfigurationFailed(
            "Which conversation is meant?", hint="`copilot-runtime knowledge memory` lists them."
        )

    async def work(knowledge: "lazy.Knowledge") -> None:
        actor = make_actor(as_user)
        if conversation is None:
            found = await knowledge.memory.conversations(access=knowledge.access(actor, "list"))
            if as_json:
                show_json({"conversations": found})
            else:
                show_table(("CONVERSATION",), [(uri,) for uri in found], _NO_MEMORIES)
        elif forget:
            access = knowledge.access(actor, "delete")
            gone = await knowledge.memory.forget(conversation, access=access)
            count = "1 memory" if len(gone) == 1 else f"{len(gone)} memories"
            typer.echo(f"Removed {count}.", err=True)
        else:
            await _show_memory(knowledge, conversation, budget, actor, as_json)

    run_with_knowledge(program, config, storage, work)


def encode_passage(passage: "Passage") -> dict[str, Any]:
    """Return a passage as JSON."""
    fields = {"id": passage.id, "title": passage.title, "score": passage.score}
    return {**fields, "text": passage.text}


def _own_properties(each: "OntologyClass") -> "Iterable[str]":
    """Return the names of the properties of a class, without inverse ones."""
    return dict.fromkeys(item.name for item in each.properties if not item.is_inverse)


def _encode_class(each: "OntologyClass") -> dict[str, Any]:
    properties = [
        {"path": it.path, "inverse": it.is_inverse, "instances": it.instances}
        for it in each.properties
    ]
    return {"class": each.iri, "instances": each.instances, "properties": properties}


def _row(passage: "Passage") -> Sequence[str]:
    score = "" if passage.score is None else f"{passage.score:.3f}"
    text = shorten(passage.text, _WIDTH - 40, placeholder=" …")
    return score, shorten(passage.title, 30, placeholder=" …"), text, passage.id


async def _show_memory(
    knowledge: "lazy.Knowledge",
    conversation: str,
    budget: int | None,
    actor: "Actor | None",
    as_json: bool,
) -> None:
    access = knowledge.access(actor)
    if budget is None:
        items = await knowledge.memory.read(conversation, access=access)
        parts = {"memory": items}
    else:
        window = await knowledge.memory.window(conversation, budget, access=access)
        names = ("tools", "context", "conversation", "left_out")
        parts = {name: getattr(window, name) for name in names}
    if as_json:
        show_json({name: [_encode_item(it) for it in items] for name, items in parts.items()})
        return
    rows = [
        (name.replace("_", " "), it.tokens or 0, it)
        for name, items in parts.items()
        for it in items
    ]
    show_table(("PART", "TOKENS", "RESOURCE"), rows, "This memory is empty.")


def _encode_item(identifier: "Identifier") -> dict[str, Any]:
    return {"id": str(identifier), "tokens": identifier.tokens, "score": identifier.score}


async def _require_resources(knowledge: "lazy.Knowledge") -> None:
    """Raise `ConfigurationFailed` if the knowledge has no resources at all."""
    if not await knowledge.resources.versions():
        raise ConfigurationFailed(
            f"There is no knowledge in {knowledge.address} (looked in {Path.cwd()}).",
            hint="`copilot-runtime knowledge ingest FOLDER` takes documents in; "
            "--storage and the setting knowledge.storage say where they are.",
        )


async def _require_vectors(knowledge: "lazy.Knowledge") -> None:
    """Raise `ConfigurationFailed` if the knowledge has no vectors at all."""
    await _require_resources(knowledge)
    if not await knowledge.vectors.count():
        raise ConfigurationFailed(
            f"Nothing in {knowledge.address} was embedded by {knowledge.embedder.model}.",
            hint="`copilot-runtime knowledge ingest FOLDER` embeds the resources; "
            "the setting knowledge.embedder says by which model.",
        )


def _split_pattern(parts: list[str]) -> list[str]:
    """Return the parts of a pattern, given as one argument or as several."""
    if len(parts) != 1:
        return parts
    from copilot_runtime.extensions.knowledge.graph.terms import parse_pattern

    try:
        whole = parse_pattern(parts[0])
    except Misuse:
        return parts
    return [whole.subject or "?", whole.predicate or "?", whole.object or "?"]


async def _guess_predicate(
    knowledge: "lazy.Knowledge", predicate: str, actor: "Actor | None"
) -> str:
    """Return a suggestion for a predicate that no triple has, or an empty string."""
    from copilot_runtime.extensions.knowledge.graph.terms import is_wildcard

    if is_wildcard(predicate):
        return ""
    prefixes = knowledge.graph.prefixes
    try:
        result = await knowledge.sparql(_PREDICATES, actor=actor)
    except CopilotError:  # it takes too long
        return ""
    names = [prefixes.shorten(str(row["p"])[1:-1]) for row in result.rows]
    (term,) = prefixes.parse_node(predicate, "predicate").terms
    name = prefixes.shorten(term[1:-1])
    close = [] if name in names else get_close_matches(name, names, n=1, cutoff=0.8)
    return f"Did you mean {close[0]}?" if close else ""


async def _show_sparql(
    knowledge: "lazy.Knowledge", query: str, actor: "Actor | None", limit: int, as_json: bool
) -> None:
    result = await knowledge.sparql(query, actor=actor, limit=limit)
    if not (result.rows or result.triples or result.boolean or result.cut):
        await _require_resources(knowledge)
    rows = [[str(row.get(name, "")) for name in result.variables] for row in result.rows]
    triples = [(str(it.subject), str(it.predicate), str(it.object)) for it in result.triples]
    if as_json:
        solutions = [{name: str(term) for name, term in row.items()} for row in result.rows]
        answer = {"rows": solutions, "triples": triples, "boolean": result.boolean}
        show_json({"variables": result.variables, **answer, "cut": bool(result.cut)})
        return
    if result.boolean is not None:
        typer.echo("yes" if result.boolean else "no")
    elif triples:
        _show_terms(knowledge, ("SUBJECT", "PREDICATE", "OBJECT"), triples, "")
    elif rows or not result.cut:
        head = [name.upper() for name in result.variables]
        _show_terms(knowledge, head, rows, "The query has no result.")
    if result.cut == "bytes":
        typer.echo(_describe_size(knowledge, is_empty=not (rows or triples)), err=True)
    elif result.cut:
        typer.echo(f"There is more: --limit {2 * limit} shows it.", err=True)


def _show_terms(
    knowledge: "lazy.Knowledge", head: Sequence[str], rows: Iterable[Sequence[str]], nothing: str
) -> None:
    """Print terms in the shortest form that patterns accept: `schema:name`, `5`, `"a text"@en`."""
    prefixes = knowledge.graph.prefixes

    def shorten_term(text: str) -> str:
        if text.startswith("<"):
            return text if " " in text else prefixes.shorten(text[1:-1])
        value, mark, datatype = text.rpartition('"^^<')
        if not mark:
            return text
        name = prefixes.shorten(datatype[:-1])
        return value[1:] if name in _PLAIN_TYPES else f'{value}"^^{name}'

    show_table(head, [[*map(shorten_term, row)] for row in rows], nothing)


def _describe_size(knowledge: "lazy.Knowledge", *, is_empty: bool) -> str:
    """Return why a result was truncated at its maximum size, and a hint."""
    from copilot_runtime.extensions.knowledge.graph import read_options

    most = read_options(knowledge.settings.graph_options).sparql.bytes
    what = "The first result alone is larger" if is_empty else "There is more, and it is larger"
    return (
        f"{what} than the {most} bytes that an answer may have. "
        "Ask for less, or raise sparql.bytes in the setting knowledge.graph_options."
    )
