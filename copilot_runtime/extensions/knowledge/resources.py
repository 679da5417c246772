"""Resources: named contents, and the store of them."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, starmap
from typing import Literal, cast, get_args

from copilot_runtime.base.batches import split_batches
from copilot_runtime.base.errors import CopilotError, Misuse, StoreFailed
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, get_text, require_object
from copilot_runtime.extensions.knowledge.access import (
    FULL_ACCESS,
    Access,
    require,
    run_with_access,
    select,
)
from copilot_runtime.extensions.knowledge.catalog import Catalog, CatalogChange, CatalogEntry
from copilot_runtime.extensions.knowledge.events.event import (
    DetailType,
    ResourceEvent,
    split_resources,
)
from copilot_runtime.extensions.knowledge.events.hub import ResourceEvents
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    decode_identifier,
    encode_identifier,
    find_thing,
    parse_identifier,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.index import check_ids
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from copilot_runtime.storage import ObjectChanged, Storage, StorageFailed

logger = logging.getLogger(__name__)

ContentFormat = Literal["text", "nquads", "turtle", "jsonld"]

PREFIX = "resources/"
"""The storage prefix of resources, each stored as `<uri>.json`."""

_AT_ONCE = 500
"""Maximum number of resources read in one batch."""

_FEW = 20
"""Maximum number of resources decoded on the event loop."""

OWN_FIELDS = ("id", "role", "format", "content")
"""Reserved names of fields."""


class VersionConflict(CopilotError):
    """A resource has a different version than a conditional write expected."""

    code = "CONFLICT"
    status_code = 409
    visibility = "banner"
    severity = "warning"

    def __init__(self, uri: str, expected: str, version: str) -> None:
        found = f"is in version {version!r}" if version else "is not there"
        expectation = f"version {expected!r} was expected" if expected else "it was to be new"
        super().__init__(
            f"The resource {uri!r} {found}, but {expectation}.",
            hint="Get it again, and put what follows from that.",
        )
        self.uri = uri
        self.version = version


@dataclass(frozen=True)
class Resource:
    """A content with a name: a message, a document, a thing of a graph, a tool."""

    id: Identifier
    """The identifier; missing tokens are counted in the content."""
    content: str = ""
    format: ContentFormat = "text"
    role: str = ""
    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Further fields: JSON values by name."""

    def __post_init__(self) -> None:
        if self.format not in get_args(ContentFormat):
            raise Misuse(f"A content cannot be {self.format!r}.")
        if clashes := [name for name in OWN_FIELDS if name in self.fields]:
            raise Misuse(
                f"A resource has {clashes[0]!r} of its own: it cannot be among its fields."
            )
        if self.id.tokens is None or self.id.score is not None:
            tokens = count_tokens(self.content) if self.id.tokens is None else self.id.tokens
            object.__setattr__(self, "id", replace(self.id, tokens=tokens, score=None))

    @cached_property
    def uri(self) -> str:
        """The URI of the resource."""
        return str(self.id)

    @cached_property
    def data(self) -> bytes:
        """The compact JSON that is stored."""
        return dumps(encode_resource(self))

    @cached_property
    def version(self) -> str:
        """A hash of the stored JSON: equal resources have equal versions."""
        return hashlib.sha256(self.data).hexdigest()[:32]


class ResourceIndex:
    """The resources of a storage.

    Each is an object of its own. A catalog says which ones there are and in which version, so
    that listing them all is unnecessary: indexes compare it with what they hold. What one
    method wrote, every later one of any process sees.

    `access` is checked for each resource; the default is full access, for the system
    itself. What it does not allow raises `AccessDenied` where one resource was named,
    and is left out where many are looked through.
    """

    def __init__(
        self, storage: Storage, events: ResourceEvents | None = None, *, source: str = "resources"
    ) -> None:
        self.storage = storage
        self.events = events or ResourceEvents()
        self._source = source
        self._catalog = Catalog(storage)
        self.is_reconciled = False
        """Whether this process has reconciled the catalog with the storage."""

    async def put(
        self, resource: Resource, *, access: Access = FULL_ACCESS, expected: str | None = None
    ) -> bool:
        """Store a resource, and return whether it was new or changed.

        With `expected`, raises `VersionConflict` if the stored resource has another version, or if
        `expected` is empty and it exists. Of several writers with one expectation, one succeeds.
        """
        await require(access, [resource.uri])
        if expected is None:
            return bool(await self.put_many([resource]))
        if not self._catalog.is_read:
            await self._refresh()
        key = _key(resource.uri)
        data, etag = (await self.storage.read_many([key])).get(key, (b"", ""))
        if (version := _version(resource.uri, data)) != expected:
            raise VersionConflict(resource.uri, expected, version)
        if version == resource.version:
            return False
        try:
            etag = await self.storage.put(key, resource.data, expected=etag)
        except ObjectChanged:
            data, _ = (await self.storage.read_many([key])).get(key, (b"", ""))
            raise VersionConflict(resource.uri, expected, _version(resource.uri, data)) from None
        await self._record({resource.uri: _entry(resource, etag)})
        await self._publish("RESOURCE_PUT", [resource.id])
        return True

    async def put_many(self, resources: Iterable[Resource], *, access: Access = FULL_ACCESS) -> int:
        """Store resources in one batch, and return how many were new or changed."""
        changed = {resource.uri: resource for resource in resources}
        await require(access, changed)
        if len(changed) > _FEW:
            await asyncio.to_thread(lambda: [resource.version for resource in changed.values()])
        await self._drop_equal(changed)
        if not changed:
            return 0
        entries: dict[str, CatalogEntry] = {}

        def describe(etags: Mapping[str, str]) -> Iterable[CatalogChange]:
            for uri, resource in changed.items():
                entries[uri] = _entry(resource, etags[_key(uri)])
            return starmap(CatalogChange, entries.items())

        objects = {_key(uri): resource.data for uri, resource in changed.items()}
        etags = await self._catalog.append_with_objects(objects, describe)
        await self._mend(_find_wrong(entries, {uri: etags[_key(uri)] for uri in entries}))
        await self._publish("RESOURCE_PUT", [resource.id for resource in changed.values()])
        return len(changed)

    async def get(
        self, ids: Iterable[Identifier | str] | None, *, access: Access = FULL_ACCESS
    ) -> list[Resource]:
        """Return the resources that exist, in the order of `ids`; an empty list for `None`."""
        uris = [strip_namespace(uri) for uri in check_ids(ids)]
        await require(access, uris)
        found = await self.storage.read_many(dict.fromkeys(map(_key, uris)))

        def decode() -> dict[str, Resource]:
            decoded = {_uri(key): _decode(_uri(key), data) for key, (data, _) in found.items()}
            return {uri: resource for uri, resource in decoded.items() if resource}

        resources = decode() if len(found) <= _FEW else await asyncio.to_thread(decode)
        await self._compare({uri: found[_key(uri)][1] if uri in resources else "" for uri in uris})
        results = [resources[uri] for uri in uris if uri in resources]
        await self._publish("RESOURCE_GET", [resource.id for resource in results])
        return results

    async def get_visible(self, ids: Iterable[Identifier | str], access: Access) -> list[Resource]:
        """Return the resources that exist and may be read.

        Used for search results, since the policy may have changed in the meantime.
        """
        return await self.get(await select(access, ids))

    async def has(self, id: Identifier | str, *, access: Access = FULL_ACCESS) -> bool:
        """Return whether a resource exists."""
        uri = strip_namespace(str(id))
        await require(access, [uri])
        return await self.storage.exists(_key(uri))

    async def delete(
        self, id: Identifier | str, *, access: Access = FULL_ACCESS
    ) -> list[Identifier]:
        """Delete a resource and its descendants. Returns the deleted identifiers."""
        return await self.delete_many([id], access=access)

    async def delete_many(
        self, ids: Iterable[Identifier | str], *, access: Access = FULL_ACCESS
    ) -> list[Identifier]:
        """Delete resources and their descendants. Returns the deleted identifiers.

        If access to one of them is denied, none is deleted.
        """
        roots = dict.fromkeys(strip_namespace(uri) for uri in check_ids(ids))
        await require(access, roots)
        if not roots:
            return []
        uris = await self._find_below(roots)
        await require(access, uris)
        removed = [_uri(key) for key in await self.storage.delete_many(map(_key, uris))]
        await self._record(dict.fromkeys(uris))
        identifiers = [parse_identifier(uri) for uri in removed]
        await self._publish("RESOURCE_DELETE", identifiers)
        return identifiers

    async def find_by_prefix(
        self, prefix: Identifier | str, *, access: Access = FULL_ACCESS
    ) -> list[Identifier]:
        """Return the identifiers of a resource and its descendants."""
        parent = strip_namespace(str(prefix))
        if not parent:
            raise Misuse("prefix is required")
        child = f"{parent}/"

        def choose(entries: Mapping[str, CatalogEntry]) -> list[str]:
            found = [uri for uri in entries if uri.startswith(child) or uri == parent]
            return found or [parent]  # judged as if it were there: a guess takes as long

        return await self._find(access, choose)

    async def find_by_type(self, type: str, *, access: Access = FULL_ACCESS) -> list[Identifier]:
        """Return all resources of a type, such as `common.Message`."""
        return await self._find(
            access, lambda entries: [uri for uri, entry in entries.items() if entry.type == type]
        )

    async def find_all(self, *, access: Access = FULL_ACCESS) -> list[Identifier]:
        """Return all resources."""
        return await self._find(access, lambda entries: [*entries])

    async def find_things(self, names: Iterable[str]) -> dict[str, Sequence[str]]:
        """Return the URIs of the resources of things in files, by the names of `find_thing`."""
        await self._refresh()
        things = await self._catalog.list_things()
        return {name: things[name] for name in names if name in things}

    async def drop_shorter(self, found: Sequence[Identifier]) -> list[Identifier]:
        """Return the identifiers with one resource of each thing: the longest of them."""
        things, uris = await self.find_things(map(find_thing, map(str, found))), {*map(str, found)}
        shorter = {it for same in things.values() for it in [*filter(uris.__contains__, same)][1:]}
        return [it for it in found if str(it) not in shorter]

    async def count(self) -> int:
        """Return the number of resources; those of a thing in several files are one."""
        entries = await self._refresh()
        things = await self._catalog.list_things()
        return len(entries) - sum(len(uris) - 1 for uris in things.values() if uris)

    async def versions(self) -> Mapping[str, CatalogEntry]:
        """Return type, tokens and version of all resources by URI, from memory.

        The mapping is a view that changes with the resources: copy what must stay.
        """
        return await self._refresh()

    async def find_by_key(self, key: str) -> str:
        """Return the URI that has a key of `shorten_uri`; an empty string if there is none."""
        await self._refresh()
        return (await self._catalog.list_keys()).get(key, "")

    async def reconcile(self) -> int:
        """Repair the catalog from the storage, and return the number of changed entries.

        Lists the storage, and reads only the objects whose etags differ from the catalog.
        """
        self.is_reconciled = True
        try:
            entries = {**await self._catalog.refresh()}
            keys = await self.storage.find_etags(PREFIX)

            def compare() -> dict[str, str]:
                etags = {_uri(key): etag for key, etag in keys.items() if key.endswith(".json")}
                return _find_wrong(entries, etags)

            count = await self._mend(await asyncio.to_thread(compare))
            await self._catalog.refresh()  # updates the shared mapping of entries
            return count
        except BaseException:
            self.is_reconciled = False
            raise

    async def aclose(self) -> None:
        """Compact the catalog, so that the next process loads it fast."""
        await self._catalog.compact()

    async def _refresh(self) -> Mapping[str, CatalogEntry]:
        """Return the current entries of the catalog; rebuild it if it is missing."""
        entries = await self._catalog.refresh()
        if self._catalog.is_missing and not self.is_reconciled:
            await self.reconcile()
            await self._catalog.refresh()
        return entries

    async def _drop_equal(self, changed: dict[str, Resource]) -> None:
        """Remove the resources that are already stored in the same version."""
        if not self._catalog.is_read:
            await self._refresh()
        same = {
            uri: entry.etag
            for uri, resource in changed.items()
            if (entry := self._catalog.find(uri)) and entry.version == resource.version
        }
        for uri, etag in (await self._find_etags(same)).items() if same else ():
            if etag == same[uri]:
                del changed[uri]

    async def _find_below(self, roots: Collection[str]) -> list[str]:
        """Return the URIs of resources and their descendants, from the storage and the catalog."""
        found = dict.fromkeys(roots)
        for uri in roots:
            keys = await self.storage.find_by_prefix(f"{PREFIX}{uri}/")
            found |= dict.fromkeys(_uri(key) for key in keys if key.endswith(".json"))
        uris = [*await self._catalog.refresh()]
        return [*found | dict.fromkeys(await asyncio.to_thread(_select_below, uris, roots))]

    async def _find(
        self, access: Access, choose: Callable[[Mapping[str, CatalogEntry]], list[str]]
    ) -> list[Identifier]:
        """Return the chosen resources that exist and may be seen, beside the event loop."""
        entries = dict(await self._refresh())

        def select() -> list[Identifier]:
            uris = choose(entries)
            allowed = filter(entries.__contains__, compress(uris, access.judge(uris)))
            return [parse_identifier(uri, entries[uri].tokens) for uri in allowed]

        return await run_with_access(access, select)

    async def _record(self, entries: Mapping[str, CatalogEntry | None]) -> None:
        """Record writes in the catalog, and repair entries that other writers changed meanwhile."""
        await self._catalog.append(CatalogChange(uri, entry) for uri, entry in entries.items())
        etags = await self._find_etags(entries)
        await self._mend(_find_wrong(entries, etags))

    async def _find_etags(self, uris: Iterable[str]) -> dict[str, str]:
        etags = await self.storage.find_many_etags(map(_key, uris))
        return {_uri(key): etag for key, etag in etags.items()}

    async def _compare(self, etags: Mapping[str, str]) -> None:
        """Repair the catalog if its entries differ from the objects that were read.

        With read-only access to the storage, the repair is skipped.
        """
        find = self._catalog.find
        if self._catalog.is_read and _find_wrong({uri: find(uri) for uri in etags}, etags):
            await self._catalog.refresh()
            try:
                await self._mend(_find_wrong({uri: find(uri) for uri in etags}, etags))
            except StorageFailed as error:
                logger.warning("The catalog of resources is not mended: %s", error.message)

    async def _mend(self, wrong: Mapping[str, str]) -> int:
        """Replace the wrong entries, given by their etags, with those of the stored objects."""
        mended = 0
        for batch in split_batches(wrong.items(), _AT_ONCE):
            changes = await self._find_changes(dict(batch))
            await self._catalog.append(changes)
            mended += len(changes)
        return mended

    async def _find_changes(self, before: Mapping[str, str]) -> list[CatalogChange]:
        """Return the changes that make the catalog match the storage."""
        stored = await self.storage.read_many(map(_key, before))
        changes: list[CatalogChange] = []
        for uri, old in before.items():
            data, etag = stored.get(_key(uri), (b"", ""))
            resource = _decode(uri, data) if etag else None
            entry = _entry(resource, etag) if resource else None
            if _etag_of(entry) != old:
                changes.append(CatalogChange(uri, entry, old))
        return changes

    async def _publish(self, detail_type: DetailType, identifiers: list[Identifier]) -> None:
        """Publish an event. A failure to store it does not undo the change."""
        if not identifiers or not self.events.wants(detail_type):
            return
        try:
            await self.events.publish(
                *(
                    ResourceEvent(detail_type=detail_type, resources=part, source=self._source)
                    for part in split_resources(identifiers)
                )
            )
        except StoreFailed as error:
            logger.error("Events of %d resources are lost: %s", len(identifiers), error.message)


def encode_resource(resource: Resource) -> JsonObject:
    """Return a resource as its JSON: empty members are left out."""
    encoded: JsonObject = {"id": encode_identifier(resource.id)}
    if resource.role:
        encoded["role"] = resource.role
    if resource.format != "text":
        encoded["format"] = resource.format
    if resource.content:
        encoded["content"] = resource.content
    return {**encoded, **resource.fields}


def decode_resource(data: bytes) -> Resource:
    """Read the JSON of a resource. Raises `Misuse`."""
    try:
        value = require_object(loads(data), "A resource")
    except ValueError as error:
        raise Misuse(f"A stored resource cannot be read: {error}") from error
    return Resource(
        decode_identifier(value.get("id")),
        get_text(value, "content"),
        cast("ContentFormat", get_text(value, "format") or "text"),
        get_text(value, "role"),
        {name: item for name, item in value.items() if name not in OWN_FIELDS},
    )


def _decode(uri: str, data: bytes) -> Resource | None:
    """Decode a stored resource; log a malformed one and return `None`."""
    try:
        resource = decode_resource(data)
    except CopilotError as error:
        logger.error("%s is no resource: %s", _key(uri), error.message)
        return None
    if resource.uri != uri:
        logger.error("%s is the resource %s: it is not at its place.", _key(uri), resource.uri)
        return None
    return resource


def _version(uri: str, data: bytes) -> str:
    resource = _decode(uri, data) if data else None
    return resource.version if resource else ""


def _entry(resource: Resource, etag: str) -> CatalogEntry:
    return CatalogEntry(resource.version, resource.id.type, resource.id.tokens or 0, etag)


def _etag_of(entry: CatalogEntry | None) -> str:
    return entry.etag if entry else ""


def _find_wrong(
    entries: Mapping[str, CatalogEntry | None], etags: Mapping[str, str]
) -> dict[str, str]:
    """Return the etags of the entries that differ from those of the storage, by URI."""
    return {
        uri: etag
        for uri in {**entries, **etags}
        if (etag := _etag_of(entries.get(uri))) != etags.get(uri, "")
    }


def _select_below(uris: Iterable[str], roots: Collection[str]) -> list[str]:
    """Return the URIs that are descendants of a root."""
    below: list[str] = []
    for uri in uris:
        end = uri.rfind("/")
        while end > 0 and uri[:end] not in roots:
            end = uri.rfind("/", 0, end)
        if end > 0:
            below.append(uri)
    return below


def _key(uri: str) -> str:
    return f"{PREFIX}{uri}.json"


def _uri(key: str) -> str:
    return key.removeprefix(PREFIX).removesuffix(".json")
