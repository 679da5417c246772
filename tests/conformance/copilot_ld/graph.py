"""Patterns, subjects and the file of a graph."""

import json
import re
from typing import Any

from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.knowledge.graph import (
    GraphIndex,
    GraphItem,
    GraphOptions,
    Pattern,
    parse_pattern,
)
from copilot_runtime.extensions.knowledge.graph.content import encode_copilot_ld_line
from copilot_runtime.extensions.knowledge.graph.terms import is_wildcard
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.rdf.terms import parse_triples
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case

E = "https://example.invalid/"
S = "https://schema.org/"
A = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
XSD = "http://www.w3.org/2001/XMLSchema#"

PEOPLE = {
    ("m1", 100): [
        f"<{E}alice> {A} <{S}Person> .",
        f'<{E}alice> <{S}name> "Alice Smith" .',
        f"<{E}alice> <{S}knows> <{E}bob> .",
    ],
    ("m2", 200): [
        f"<{E}bob> {A} <{S}Individual> .",
        f'<{E}bob> <{S}name> "Bob"@en .',
        f'<{E}bob> <{S}age> "42"^^<{XSD}integer> .',
    ],
    ("m3", 50): [f'<{E}alice> <{S}email> "a@x" .'],
}
"""What the cases call `m1(100 tok): alice a schema:Person; …`."""

PATIENTS = {
    ("x", 10): [
        f"<https://e/x> {A} <{S}Person> .",
        f"<https://e/x> {A} <{S}Patient> .",
    ],
    ("a", 10): [f"<https://e/a> {A} <{S}Drug> ."],
}

SYNONYM = 'schema:PersonShape a sh:NodeShape ; skos:altLabel "Individual" .'


async def answer(case: Case) -> Any:
    """Do what the feature of a case names."""
    feature = case.feature
    if feature == "isWildcard":
        return is_wildcard(case.input)
    if feature == "parseGraphQuery":
        pattern = parse_pattern(case.input)
        return {
            "subject": pattern.subject,
            "predicate": pattern.predicate,
            "object": pattern.object,
        }
    if feature.startswith("getSubjects"):
        return await _find_subjects(case)
    if feature.startswith(("GetSubjects", "QueryByPattern")):
        return await _serve(case)
    if feature.startswith("GetOntology"):
        return await _read_ontology(case)
    if feature.startswith("index.jsonl"):
        return await _write_line(case)
    if feature.startswith("reload"):
        return await _reload()
    return await _find(case.input, await build(PEOPLE))


async def build(
    data: dict[tuple[str, int], list[str]],
    storage: MemoryStorage | None = None,
    vocabulary: str = "",
) -> GraphIndex:
    """Return a graph of messages, each with its tokens."""
    graph = GraphIndex(storage or MemoryStorage(), GraphOptions(vocabulary=vocabulary))
    for (name, tokens), lines in data.items():
        identifier = Identifier("common.Message", name, tokens=tokens)
        await graph.add(GraphItem(identifier, parse_triples(lines)))
    return graph


async def _find(search: dict[str, Any], graph: GraphIndex) -> list[str]:
    """Search as Copilot-LD does: for all that says anything about a subject that matches."""
    pattern, filter = search["pattern"], search.get("filter") or {}
    prefix = filter.get("prefix") or ""
    found = await graph.find(
        Pattern(*(pattern.get(part) for part in ("subject", "predicate", "object"))),
        Filter(
            type=prefix if prefix.count(".") == 1 else "",  # the name of a type begins all names
            prefix=prefix if prefix.count(".") > 1 else "",
            limit=int(filter.get("limit") or 0),
            max_tokens=int(filter.get("max_tokens") or 0),
        ),
        wide=True,
    )
    return [str(identifier) for identifier in found]


async def _find_subjects(case: Case) -> dict[str, str]:
    quoted = re.search(r"'([^']*)'", case.feature)
    type = quoted[1] if quoted else ""
    if "synonym" in case.feature:
        type = "schema:Person"
    elif "unknown" in case.feature:
        type = case.input
    graph = await build(PEOPLE, vocabulary=SYNONYM if "synonym" in case.feature else "")
    return {subject: types[-1] for subject, types in (await graph.subjects(type)).items()}


async def _serve(case: Case) -> dict[str, Any]:
    """Answer as the service does: lines of subjects with the type that was asked for."""
    graph = await build(PATIENTS)
    if case.feature.startswith("QueryByPattern"):
        return {"identifiers": await _find({"pattern": case.input}, graph)}
    type = case.input if isinstance(case.input, str) else ""
    iri = graph.prefixes.expand(type) or type
    found = await graph.subjects(type)
    lines = (f"{subject}\t{iri if iri in types else types[-1]}" for subject, types in found.items())
    return {"content": "\n".join(sorted(lines))}


async def _read_ontology(case: Case) -> dict[str, str]:
    storage = MemoryStorage()
    if case.input is not None:
        await storage.put("graphs/ontology.ttl", case.output["content"].encode())
    return {"content": await GraphIndex(storage).stored_ontology()}


async def _write_line(case: Case) -> str:
    graph = await build(PEOPLE)
    table = graph._table  # pyright: ignore[reportPrivateUsage]
    holder = table.holders[f"common.Message.{case.input}"]
    return dumps(encode_copilot_ld_line(holder, table)).decode()


async def _reload() -> dict[str, Any]:
    """Read the file that Copilot-LD would have written, and ask the new graph."""
    graph = await build(PEOPLE)
    table = graph._table  # pyright: ignore[reportPrivateUsage]
    lines = [encode_copilot_ld_line(holder, table) for holder in table.holders.values()]
    storage = MemoryStorage()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    await storage.put("graphs/index.jsonl", text.encode())
    again = GraphIndex(storage)
    found = await _find({"pattern": {"object": '"Alice Smith"'}}, again)
    return {"en": found, "n": len(await again.find())}
