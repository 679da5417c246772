"""Documents as pages for browsers, with the passage that a link leads to."""

import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from urllib.parse import urlsplit

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.jsonvalue import JsonValue, as_count, as_list, get_object, get_text
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.knowledge.identifiers import BASE, CHUNK, Identifier
from copilot_runtime.extensions.knowledge.passages import ANCHOR, repeats_title
from copilot_runtime.extensions.knowledge.resources import Resource

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
"""Content security policy of these pages: they load nothing, since content is untrusted."""

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#e5e5e1, #2b2f34);
  --quiet: light-dark(#5d6168, #a2a7af); --accent: light-dark(#0f766e, #45c4b7); }
body { font: 15px/1.65 Inter, system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  background: light-dark(#fbfbfa, #101113); color: light-dark(#1a1c1f, #ececed);
  max-width: 44rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.3; letter-spacing: -.02em; overflow-wrap: anywhere; }
h2 { font-size: 1.0625rem; margin: 2rem 0 .3rem; overflow-wrap: anywhere; }
article { white-space: pre-wrap; overflow-wrap: anywhere; scroll-margin-top: 5rem; }
article b { color: var(--quiet); font-weight: 400; }
h2 + article, article + article { margin-top: .6rem; }
#here:not(:only-of-type) { box-shadow: -3px 0 var(--accent); border-radius: 0 .45rem .45rem 0;
  background: color-mix(in srgb, var(--accent) 9%, transparent);
  padding: .5rem .9rem; margin-inline: -.9rem; }
a { color: var(--accent); }
details { border-top: 1px solid var(--line); margin-top: 3rem; padding-top: .9rem; }
summary { cursor: pointer; color: var(--quiet); }
details, summary { font-size: .8125rem; }
td { padding: .15rem 1.2rem .15rem 0; vertical-align: top; overflow-wrap: anywhere; }
td:first-child { color: var(--quiet); white-space: nowrap; }
"""

_LABELS = re.compile(r"^([^:\n]{1,40}:)(?= )", re.M)
"""The name of a property, at the begin of a line of a resource made of triples."""


async def read_document(
    knowledge: Knowledge, resource: Resource, reader: Actor
) -> Sequence[Resource]:
    """Return the chunks of a chunk's document that the reader may read, in their order.

    Empty if the resource is no chunk of a document.
    """
    if resource.id.type != CHUNK or not resource.id.parent:
        return ()
    access = knowledge.access(reader)
    order = {uri: at for at, uri in enumerate(await knowledge.ingestion.list_parts(resource.uri))}

    def find_place(chunk: Identifier) -> int:  # those of an uploaded file are numbered
        return order.get(str(chunk), int(chunk.name) if chunk.name.isdecimal() else len(order))

    found = await knowledge.resources.find_by_prefix(resource.id.parent, access=access)
    chunks = sorted((it for it in found if it.type == CHUNK), key=find_place)
    return await knowledge.resources.get_visible(chunks, access)


def render_document(
    document: Sequence[Resource], resource: Resource, passage: Passage, files: Sequence[str]
) -> str:
    """Return a document as HTML, in which a resource is marked; the resource if it is in none.

    Contents are escaped, and only HTTP addresses become links.
    """
    lines = escape(passage.text)
    if resource.format != "text":
        lines = _LABELS.sub(r"<b>\1</b>", lines)
    title, text = passage.title, f'<article id="{ANCHOR}">{lines}</article>'
    if document:
        title = get_text(resource.fields, "title") or title
        text = "".join(
            ("" if repeats_title(heading, title) else f"<h2>{escape(heading)}</h2>")
            + "".join(_render_chunk(chunk, is_marked=chunk.uri == resource.uri) for chunk in chunks)
            for heading, chunks in groupby(document, _find_heading)
        )
    provenance = list_provenance(resource, files)
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{_link(value)}</td></tr>" for name, value in provenance
    )
    source = dict(reversed(provenance)).get("source", "Provenance")
    return _render_page(
        title,
        f"{text}<details><summary>{escape(source)}</summary><table>{rows}</table></details>",
    )


def render_missing() -> str:
    """Return a page in place of a document that is not there, or that the reader may not read."""
    return _render_page(
        "There is no such document",
        "<p>It was deleted or changed since it was found, or you may not read it.</p>",
    )


def _render_page(title: str, content: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{content}</html>"
    )


def list_provenance(resource: Resource, files: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return the provenance of a resource as pairs of a label and a value."""
    place = get_object(resource.fields, "place")
    page = as_count(place.get("page"))
    where = ", ".join(f"{name} {_describe(value)}" for name, value in place.items())
    rows = [
        *(("source", file) for file in files or [get_text(resource.fields, "source")]),
        ("place", where),
        *(
            ("about", f"{it}#page={page}" if page and it.endswith(".pdf") else it)
            for it in (iri.removeprefix(BASE) for iri in resource.id.subjects)
        ),
        ("type", resource.id.type),
        ("resource", resource.uri),
        ("version", resource.version),
        ("tokens", str(resource.id.tokens or 0)),
    ]
    return [(name, value) for name, value in rows if value]


def _render_chunk(chunk: Resource, *, is_marked: bool) -> str:
    mark = f' id="{ANCHOR}"' if is_marked else ""
    return f"<article{mark}>{escape(chunk.content)}</article>"


def _find_heading(chunk: Resource) -> str:
    """Return the page and the headings above a chunk."""
    place = get_object(chunk.fields, "place")
    page = as_count(place.get("page"))
    return ", ".join(filter(None, [f"Page {page}" if page else "", get_text(place, "heading")]))


def _describe(value: JsonValue) -> str:
    """Return a value, or a range as `1 to 5`."""
    return " to ".join(map(str, dict.fromkeys(as_list(value) or [value])))


def _link(value: str) -> str:
    host = urlsplit(value).hostname if value.startswith(("http://", "https://")) else ""
    if not host or host.endswith(".invalid"):
        return escape(value)
    return f'<a href="{escape(value)}" rel="noreferrer noopener">{escape(value)}</a>'
