"""Read resources as passages: text, title, link, parts, and labels of referenced things."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.jsonvalue import as_count, get_object, get_text
from copilot_runtime.extensions.knowledge.access import Access, select
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    find_thing,
    hash_values,
    shorten_uri,
)
from copilot_runtime.extensions.knowledge.tokens import count_tokens, cut_text

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.identifiers import Identifier
    from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex


ANCHOR = "here"
"""The fragment of a link to a passage in its document."""

_LEAST_TOKENS = 40
"""Minimum number of tokens of a truncated passage."""

_NAMELESS = re.compile(r'"(urn:skolem:[^"\s]+)"')
_MOST_PARTS = 20
_LINKS = {
    "jsonld": re.compile(r'"@id"\s*:\s*"([^"\\]+)"'),
    "turtle": re.compile(r"<([^<>\s]+)>"),
    "nquads": re.compile(r"<([^<>\s]+)>"),
}
_MOST_LINKS = 100

_LONGEST_TITLE = 120
_BELOW = " \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "
"""Stands between a heading and the one above it."""
_BETWEEN_NAMES = "\N{MIDDLE DOT}|-\N{EN DASH}\N{EM DASH}"
"""Stand between the title of a page and the name of its site."""


def build_passage(
    resource: "Resource",
    link: str = "",
    score: float | None = None,
    parts: Sequence["Resource"] = (),
    names: Mapping[str, str] | None = None,
) -> Passage:
    """Return a resource as a passage, followed by the texts of its parts.

    `link` is the base URL of resource pages, and `names` are the labels of the things that it
    refers to, by IRI.
    """
    text = render_resource(resource, names)
    own = {*text.split("\n")}  # the same thing in another file says much of it again
    others = (render_resource(part, names).split("\n") for part in parts)
    return Passage(
        id=resource.uri,
        title=_find_title(resource),
        text="\n".join([text, *(line for lines in others for line in lines if line not in own)]),
        url=f"{link}{shorten_uri(resource.uri)}#{ANCHOR}" if link else "",
        score=score,
    )


def find_links(resource: "Resource") -> dict[str, str]:
    """Return the IRIs of the things that a resource refers to, by the last parts of their URIs."""
    if resource.format not in _LINKS:
        return {}
    own = {*resource.id.subjects}
    iris = dict.fromkeys(_LINKS[resource.format].findall(resource.content))
    links = islice((iri for iri in iris if iri not in own), _MOST_LINKS)
    return {str(Identifier(resource.id.type, hash_values(iri))): iri for iri in links}


def find_parts(resource: "Resource") -> list[str]:
    """Return the URIs of parts without an IRI (blank nodes), such as the answer to a question."""
    if resource.format != "jsonld":
        return []
    iris = dict.fromkeys(_NAMELESS.findall(resource.content))
    own = {*resource.id.subjects}
    parts = (replace(resource.id, name=hash_values(iri)) for iri in iris if iri not in own)
    return [*map(str, islice(parts, _MOST_PARTS))]


def cut_passages(passages: Sequence[Passage], max_tokens: int) -> list[Passage]:
    """Return the first passages within `max_tokens`, the last one truncated; 0 is unlimited."""
    if max_tokens <= 0:
        return [*passages]
    cut: list[Passage] = []
    left = max_tokens
    for passage in passages:
        if cut and left < _LEAST_TOKENS:
            break
        text = cut_text(passage.text, left)
        left -= count_tokens(text)
        cut.append(replace(passage, text=text))
    return cut


def render_resource(resource: "Resource", names: Mapping[str, str] | None = None) -> str:
    """Return the text of a resource; one of triples has a line for each property.

    Things are called by the `names` of their IRIs, as far as there are some.
    A piece of a document has the title of that and the headings above it in the first line: they
    may be the question that it answers.
    """
    if resource.format == "text":
        return "\n".join(filter(None, [_find_headings(resource), resource.content]))
    from copilot_runtime.extensions.knowledge.rdf.text import render_text  # loads pyoxigraph

    return render_text(resource.content, resource.format, names)


def _find_headings(resource: "Resource") -> str:
    """Return the title of a text and the headings above it, from the outermost one."""
    if not resource.content.strip():
        return ""
    title = get_text(resource.fields, "title")
    above = get_text(get_object(resource.fields, "place"), "heading").split(_BELOW)
    if title.startswith(above[0]):  # as in "News - Acme", which is above "News"
        del above[0]
    return _BELOW.join(text[:_LONGEST_TITLE] for text in (title, *above) if text)


def repeats_title(heading: str, title: str) -> bool:
    """Return `True` if a heading is the title, or its part before or after a site's name."""
    parts = [f" {mark} " for mark in _BETWEEN_NAMES]
    return heading == title or any(
        title.startswith(heading + part) or title.endswith(part + heading) for part in parts
    )


def _find_title(resource: "Resource") -> str:
    """Return the title of a resource: its own, or that of its page with the position in it."""
    title = get_text(resource.fields, "title")
    if not title and resource.format != "text":  # a thing without a name: where it is
        file = get_text(resource.fields, "source").rpartition("/")[2]
        title = get_text(resource.fields, "page_title") or file
    place = get_object(resource.fields, "place")
    heading = get_text(place, "heading").rpartition(_BELOW)[2]
    page = as_count(place.get("page"))
    parts = [title or resource.id.name, "" if repeats_title(heading, title) else heading]
    if page is not None:
        parts.append(f"page {page}")
    return ", ".join(filter(None, parts))[:_LONGEST_TITLE]


class PassageReader:
    """Reads passages of the resources that `access` allows.

    `link` is the base URL of resource pages.
    """

    def __init__(self, resources: "ResourceIndex", access: Access, link: str = "") -> None:
        self._resources = resources
        self._access = access
        self._link = link

    async def read(self, resource: "Resource") -> Passage:
        """Return a readable resource as a passage."""
        (passage,) = await self._build([resource], {})
        return passage

    async def read_results(
        self, found: "Sequence[Identifier]", max_tokens: int = 0, *, whole: bool = False
    ) -> list[Passage]:
        """Return existing search results as passages, truncated to `max_tokens`.

        Things are read `whole`, or only as far as the file of the result describes them. The whole
        has the identifier of the longest resource that says all of the result.
        """
        resources = await self._resources.get_visible(found, self._access)
        scores = {str(identifier): identifier.score for identifier in found}
        files = [[it] for it in resources]
        if whole:
            files = await self._read_files(resources)
            for resource, (first, *_) in zip(resources, files, strict=True):
                scores[first.uri] = scores[resource.uri]
        others = {first.uri: rest for first, *rest in files}
        passages = await self._build([same[0] for same in files], scores, others)
        return await call(cut_passages, passages, max_tokens)

    async def read_titles(self, found: "Sequence[Identifier]") -> dict[str, str]:
        """Return the titles of resources, by URI."""
        resources = await self._resources.get_visible(found, self._access)
        return {it.uri: build_passage(it).title for it in resources}

    async def _build(
        self,
        resources: "Sequence[Resource]",
        scores: Mapping[str, float | None],
        others: "Mapping[str, Sequence[Resource]]" = MappingProxyType({}),
    ) -> list[Passage]:
        """Return passages, with the parts of each resource and its `others`, by URI."""
        rest = {it.uri: [*others.get(it.uri, ())] for it in resources}
        parts = await self._read_parts([*resources, *chain.from_iterable(rest.values())])
        for uri, below in rest.items():
            rest[uri] = [*parts[uri], *chain.from_iterable((it, *parts[it.uri]) for it in below)]
        names = await self._read_names([*resources, *chain.from_iterable(rest.values())])

        def build() -> list[Passage]:
            return [
                build_passage(it, self._link, scores.get(it.uri), rest[it.uri], names)
                for it in resources
            ]

        passages: list[Passage] = await call(build)
        return passages

    async def _read_parts(self, resources: "Sequence[Resource]") -> "dict[str, list[Resource]]":
        """Return the nameless parts of each resource, by its URI."""
        uris = {resource.uri: find_parts(resource) for resource in resources}
        every = [*dict.fromkeys(chain.from_iterable(uris.values()))]
        parts = {it.uri: it for it in await self._resources.get_visible(every, self._access)}
        return {uri: [parts[it] for it in below if it in parts] for uri, below in uris.items()}

    async def _read_names(self, resources: "Iterable[Resource]") -> dict[str, str]:
        """Return the labels of the things that resources refer to, by IRI."""
        iris: dict[str, str] = {}
        for resource in resources:
            iris |= find_links(resource)
        named = await self._find_things(iris)
        found = await self._resources.get_visible(chain.from_iterable(named.values()), self._access)
        titles = {find_thing(it.uri): get_text(it.fields, "title") for it in found}
        return {iris[name]: title for name, title in titles.items() if title}

    async def _read_files(self, resources: "Sequence[Resource]") -> "list[list[Resource]]":
        """Return each resource with those of the same thing in other files, the longest first.

        Before them all is the longest that says all of the resource.
        """
        names = [find_thing(it.uri) for it in resources]
        things = await self._find_things(names)
        uris = chain.from_iterable(things.values())
        read = {it.uri: it for it in await self._resources.get_visible(uris, self._access)}

        def sort(resource: "Resource", name: str) -> "list[Resource]":
            same = [read[uri] for uri in things.get(name, ()) if uri in read]
            if len(same) < 2:
                return [resource]
            lines = render_resource(resource).split("\n")
            whole = (it for it in same if {*render_resource(it).split("\n")}.issuperset(lines))
            first = next(whole, resource)
            return [first, *(it for it in same if it.uri != first.uri)]

        found: list[list[Resource]] = await call(lambda: [*map(sort, resources, names)])
        return found

    async def _find_things(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the URIs of visible resources of things, at most `_MOST_PARTS` of each."""
        things = await self._resources.find_things(names)
        visible = {*await select(self._access, chain.from_iterable(things.values()))}
        return {
            name: [*islice((uri for uri in uris if uri in visible), _MOST_PARTS)]
            for name, uris in things.items()
        }
