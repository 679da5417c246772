"""Read JSON-LD without ever loading a context, and write one thing as JSON-LD.

https://www.w3.org/TR/json-ld11/
"""

import json
import re
from collections.abc import Iterable
from typing import cast

from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, Triple, parse

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue
from copilot_runtime.extensions.knowledge.rdf.terms import (
    RDF,
    RDF_TYPE,
    RDFS,
    SCHEMA,
    XSD,
    Statements,
    Term,
    make_iri,
    make_time,
    normalize_schema,
)

CONTEXT: JsonObject = {"@vocab": SCHEMA, "rdf": RDF, "rdfs": RDFS}
"""The context of written JSON-LD."""

_MOST_DEPTH = 100
_MOST_CONTEXTS = 1000

_REFERENCES = (
    "acquireLicensePage additionalType archivedAt codeRepository contentUrl correctionsPolicy "
    "discussionUrl diversityPolicy downloadUrl embedUrl ethicsPolicy feedUrl hasMap image "
    "installUrl isBasedOn isBasedOnUrl labelDetails license logo mainEntityOfPage map maps "
    "masthead paymentUrl photo publishingPrinciples relatedLink replyToUrl sameAs screenshot "
    "serviceUrl significantLink significantLinks target targetUrl termsOfService thumbnailUrl "
    "ticketToken trackingUrl unnamedSourcesPolicy url usageInfo"
)
"""Properties whose texts are addresses, as in the context that schema.org publishes."""

_SCHEMA_CONTEXT: JsonObject = {
    "@vocab": SCHEMA,
    "schema": SCHEMA,
    "id": "@id",
    "type": "@type",
    "HTML": {"@id": f"{RDF}HTML"},
    **{name: {"@id": SCHEMA + name, "@type": "@id"} for name in _REFERENCES.split()},
}
_SCHEMA_ADDRESS = re.compile(
    r"https?://(?:www\.)?schema\.org(?:/(?:docs/jsonldcontext\.jsonl?d?|version/.*)?)?/?#?",
    re.IGNORECASE,
)
_DATE = re.compile(r"https://schema\.org/(?:date[A-Z]\w*|\w*(?:Date|Time)|duration|temporal)")
_LIST = {f"{RDF}first", f"{RDF}rest"}
_WRAPPING = re.compile(r"^\s*(?:<!--|(?://\s*)?<!\[CDATA\[)|(?:-->|(?://\s*)?\]\]>)\s*$")


class UnreadableJsonLd(CopilotError):
    """A JSON-LD document is malformed, or needs a remote context."""

    code = "UNREADABLE_DOCUMENT"
    status_code = 422
    visibility = "banner"
    severity = "warning"


def read_jsonld(text: str, base: str, statements: Statements) -> None:
    """Add the statements of a JSON-LD document; lists become several values.

    The contexts of schema.org are built in. Raises `UnreadableJsonLd`.
    """
    try:
        document = _Preparation().prepare(json.loads(_WRAPPING.sub("", text), strict=False))
        data = json.dumps(document).encode("utf-8", "replace")
        quads = [*parse(data, format=RdfFormat.JSON_LD, base_iri=base, rename_blank_nodes=True)]
    except RecursionError as error:
        raise UnreadableJsonLd("The JSON-LD is nested too deeply.") from error
    except (SyntaxError, ValueError) as error:
        raise UnreadableJsonLd(f"The JSON-LD cannot be read: {error}") from error
    nodes: dict[BlankNode, BlankNode] = {}
    for quad in quads:
        subject, predicate, value = quad.subject, quad.predicate, quad.object
        if isinstance(subject, Triple) or isinstance(value, Triple) or predicate.value in _LIST:
            continue
        if isinstance(subject, BlankNode):
            subject = nodes.get(subject) or nodes.setdefault(subject, statements.make_node())
        else:
            subject = NamedNode(normalize_schema(subject.value))
        if isinstance(value, BlankNode):
            value = nodes.get(value) or nodes.setdefault(value, statements.make_node())
        predicate = NamedNode(normalize_schema(predicate.value))
        statements.add(subject, predicate, _normalize(predicate, value))


def write_jsonld(triples: Iterable[Triple], subject: str) -> str:
    """Return the triples of one subject as compacted JSON-LD; without any, of the first one.

    Names of schema.org stand alone, those of other vocabularies are whole. If all texts are in
    one language, the context has it, and not each of them.
    """
    about: dict[str, list[Triple]] = {}
    for triple in triples:
        about.setdefault(_id(triple.subject), []).append(triple)
    subject = subject if subject in about else next(iter(about), subject)
    own = about.get(subject, [])
    language = _common_language(own)
    values: dict[str, list[JsonValue]] = {}
    types: list[JsonValue] = []
    for triple in own:
        if triple.predicate == RDF_TYPE and isinstance(triple.object, NamedNode):
            types.append(_compact_name(triple.object.value))
        else:
            values.setdefault(triple.predicate.value, []).append(
                _compact_value(triple.object, language)
            )
    context = {**CONTEXT, "@language": language} if language else CONTEXT
    document: JsonObject = {"@context": context, "@id": subject}
    if types:
        document["@type"] = types[0] if len(types) == 1 else types
    for name in sorted(values):
        found = values[name]
        document[_compact_name(name)] = found[0] if len(found) == 1 else found
    return dumps(document).decode()


class _Preparation:
    """Replaces context URLs with built-in contexts, and lists with plain values."""

    def __init__(self) -> None:
        self._contexts = 0

    def prepare(self, value: JsonValue, depth: int = 0) -> JsonValue:
        """Return JSON-LD without remote contexts. Raises `UnreadableJsonLd`."""
        if depth > _MOST_DEPTH:
            raise UnreadableJsonLd("The JSON-LD is nested too deeply.")
        if isinstance(value, list):
            return [self.prepare(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        if "@list" in value:
            return self.prepare(value["@list"], depth + 1)
        return {
            name: self._context(item) if name == "@context" else self.prepare(item, depth + 1)
            for name, item in value.items()
        }

    def _context(self, context: JsonValue) -> JsonValue:
        match context:
            case str():
                return self._find(context)
            case list():
                return [self._context(item) for item in context]
            case dict():
                if "@import" in context:
                    return self._find(str(context["@import"]))
                return {
                    name: {**item, "@context": self._context(item["@context"])}
                    if isinstance(item, dict) and "@context" in item
                    else item
                    for name, item in context.items()
                }
            case _:
                return context

    def _find(self, address: str) -> JsonObject:
        """Return a built-in context, which is hundreds of times longer than its address."""
        if not _SCHEMA_ADDRESS.fullmatch(address):
            raise UnreadableJsonLd(
                f"The JSON-LD needs the context {address[:200]!r}, and contexts are not loaded.",
                hint="Write what it defines into the page.",
            )
        self._contexts += 1
        if self._contexts > _MOST_CONTEXTS:
            raise UnreadableJsonLd(f"The JSON-LD names more than {_MOST_CONTEXTS} contexts.")
        return _SCHEMA_CONTEXT


def _normalize(predicate: NamedNode, value: Term) -> Term:
    """Return a value as the same fact has it in microdata: dates typed, one form of schema.org."""
    if isinstance(value, NamedNode):
        return NamedNode(normalize_schema(value.value))
    if not isinstance(value, Literal) or value.language or value.datatype.value != f"{XSD}string":
        return value
    if predicate.value.startswith(SCHEMA):
        if (address := normalize_schema(value.value)).startswith(SCHEMA):
            return make_iri(address) or value
        if _DATE.fullmatch(predicate.value):
            return make_time(value.value)
    return value


def _compact_name(iri: str) -> str:
    """Return a property or a type compacted by our context."""
    if iri.startswith(SCHEMA):
        name = iri.removeprefix(SCHEMA)
        # what would be read as something else stays whole
        if name and ":" not in name and name[0] != "@" and name not in CONTEXT:
            return name
    return _compact_prefix(iri)


def _compact_prefix(iri: str) -> str:
    for prefix in ("rdf", "rdfs"):
        namespace = str(CONTEXT[prefix])
        if iri.startswith(namespace) and not iri.startswith(f"{namespace}//"):
            return f"{prefix}:{iri.removeprefix(namespace)}"
    return iri


def _compact_value(value: object, language: str) -> JsonValue:
    if not isinstance(value, Literal):
        return {"@id": _compact_prefix(_id(value))}
    if value.language:
        if value.language == language:
            return value.value
        return {"@language": value.language, "@value": value.value}
    if value.datatype.value == f"{XSD}string":
        return value.value
    return {"@type": _compact_name(value.datatype.value), "@value": value.value}


def _common_language(triples: Iterable[Triple]) -> str:
    """Return the language of all texts, if there are several, and all are in the same one."""
    texts = [triple.object for triple in triples if isinstance(triple.object, Literal)]
    languages = [text.language for text in texts if text.datatype.value in _TEXTS]
    return languages[0] or "" if len(languages) > 1 and len({*languages}) == 1 else ""


_TEXTS = {f"{XSD}string", f"{RDF}langString"}


def _id(node: object) -> str:
    return f"_:{node.value}" if isinstance(node, BlankNode) else cast("NamedNode", node).value
