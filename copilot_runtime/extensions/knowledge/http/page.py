"""The page of one resource: its text and its provenance, for a reader who follows a citation."""

from collections.abc import Sequence
from html import escape
from urllib.parse import urlsplit

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.jsonvalue import JsonValue, as_list, get_object, get_text
from copilot_runtime.extensions.knowledge.resources import Resource

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
"""What such a page may load: nothing. A resource may hold anything."""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; line-height: 1.3; overflow-wrap: anywhere; }
article { white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: .8rem;
  font-size: .85rem; width: 100%; }
td { padding: .1rem 1.2rem .1rem 0; vertical-align: top; overflow-wrap: anywhere; }
td:first-child { opacity: .7; white-space: nowrap; }
"""


def render_resource(resource: Resource, passage: Passage, files: Sequence[str]) -> str:
    """Return the page of a resource. Nothing of it is markup, and no link of it is a script."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{_link(value)}</td></tr>"
        for name, value in list_provenance(resource, files)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><meta name="robots" content="noindex">'
        f"<title>{escape(passage.title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(passage.title)}</h1><article>{escape(passage.text)}</article>"
        f"<table>{rows}</table></html>"
    )


def list_provenance(resource: Resource, files: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return where a resource is from, such as some files, and what it is: pairs of few words."""
    place = get_object(resource.fields, "place")
    where = ", ".join(f"{name} {_describe(value)}" for name, value in place.items())
    rows = [
        *(("source", file) for file in files or [get_text(resource.fields, "source")]),
        ("place", where),
        *(("about", subject) for subject in resource.id.subjects),
        ("type", resource.id.type),
        ("resource", resource.uri),
        ("version", resource.version),
        ("tokens", str(resource.id.tokens or 0)),
    ]
    return [(name, value) for name, value in rows if value]


def _describe(value: JsonValue) -> str:
    """Return a value, or the range from one to another."""
    return " to ".join(map(str, dict.fromkeys(as_list(value) or [value])))


def _link(value: str) -> str:
    host = urlsplit(value).hostname if value.startswith(("http://", "https://")) else ""
    if not host or host.endswith(".invalid"):
        return escape(value)
    return f'<a href="{escape(value)}" rel="noreferrer noopener">{escape(value)}</a>'
