"""Knowledge over HTTP: a search, resources for readers and programs, the ontology, files.

Every response contains only what the policy allows the caller to read.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import reserve_storage
from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import AccessDenied, Actor, judge
from copilot_runtime.extensions.knowledge.document_page import (
    POLICY,
    list_provenance,
    read_document,
    render_document,
    render_missing,
)
from copilot_runtime.extensions.knowledge.identifiers import CHUNK
from copilot_runtime.extensions.knowledge.policies import build_actor, conversation_identifier
from copilot_runtime.extensions.knowledge.policies.ownership import (
    UPLOAD,
    admit_stranger,
    check_conversation,
    owns,
)
from copilot_runtime.extensions.knowledge.uploads.attachments import clean_name, write_address
from copilot_runtime.extensions.knowledge.uploads.queue import RETRY_AFTER, TooManyFiles
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.form import parse_form
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import (
    Refusal,
    Services,
    Transport,
    check_method,
    error_body,
    find_data_scope,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.uploads.uploads import Upload


_MOST = 100
"""Maximum number of resources in a response."""

_MOST_TOKENS = 20_000
"""Maximum number of tokens in the response to a search."""

_LONGEST_QUERY = 2000
_PRIVATE = {"cache-control": "private, no-cache", "x-content-type-options": "nosniff"}


class KnowledgeEndpoint(Transport):
    """Serves `GET knowledge` and the paths below it, and POST for files and context windows."""

    paths = ("knowledge", "knowledge/{rest:path}")

    def __init__(self, services: Services) -> None:
        self._knowledge = services.parts.get(Knowledge)

    def find_scope(self, request: Request) -> str:
        return find_data_scope(request)

    async def accepts(self, request: Request) -> bool:
        return not request.is_websocket

    async def __call__(self, request: Request) -> None:
        handlers = _KnowledgeRequest(self._knowledge, request)
        if request.path == "knowledge/files":
            check_method(request, "POST")
            await request.respond_json(201, await store_file(self._knowledge, request), _PRIVATE)
            return
        _, _, path = request.path.partition("/")
        name, _, rest = path.partition("/")
        if name == "context" and rest and request.method == "POST":
            await handlers.optimize_window(unquote(rest))
            return
        check_method(request, "GET", "HEAD")
        match name, rest:
            case "", "":
                await handlers.status()
            case "search", "":
                await handlers.search()
            case "ontology", "":
                await handlers.ontology()
            case "ontology.svg", "":
                await handlers.picture()
            case "resources", "":
                await handlers.list_resources()
            case "resources", _:
                await handlers.show(unquote(rest))
            case "files", _:
                await handlers.send_file(unquote(rest))
            case "context", _ if rest:
                await handlers.show_window(unquote(rest))
            case _:
                raise NotFound(f"There is nothing at {request.path[:100]!r}.")


class _KnowledgeRequest:
    """The handlers of one request."""

    def __init__(self, knowledge: Knowledge, request: Request) -> None:
        self._knowledge = knowledge
        self._request = request
        self._query = dict(parse_qsl(request.query_string, keep_blank_values=True))
        self._actor = build_actor(request.caller.user)

    async def status(self) -> None:
        """Respond with the state, the number of resources, the embedder, and the sources."""
        sources = await self._knowledge.list_sources(actor=self._actor)
        found = await self._knowledge.find_resources(actor=self._actor)
        status = self._knowledge.status()
        await self._respond(
            {
                "state": status.state,
                "progress": asdict(status.progress),
                "resources": len(found),
                "embedder": self._knowledge.embedder.model,
                "sources": [*map(asdict, sources)],
            }
        )

    async def search(self) -> None:
        """Respond with the resources most similar to the text `q`."""
        text = self._query.get("q", "").strip()
        if not text:
            raise BadRequest("Write what to search for: ?q=opening+hours")
        if len(text) > _LONGEST_QUERY:
            raise BadRequest(f"q has {len(text)} characters; {_LONGEST_QUERY} are allowed.", 413)
        found = await self._knowledge.search(
            text,
            actor=self._actor,
            type=self._query.get("type", ""),
            prefix=self._query.get("prefix", ""),
            limit=self._count("limit", 10),
            max_tokens=_MOST_TOKENS,
        )
        await self._respond({"results": [*map(_encode_passage, found)]})

    async def list_resources(self) -> None:
        """Respond with a page of the resources, in the order of their ingestion."""
        found = await self._knowledge.find_resources(
            actor=self._actor,
            type=self._query.get("type", ""),
            prefix=self._query.get("prefix", ""),
        )
        start, limit = self._count("offset", 0, most=10**9), self._count("limit", 50)
        page = found[start : start + limit]
        titles = await self._knowledge.read_titles(page, actor=self._actor)
        rows = [
            {"id": str(it), "type": it.type, "tokens": it.tokens, "title": titles.get(str(it), "")}
            for it in page
        ]
        await self._respond({"resources": rows, "total": len(found)})

    async def show(self, name: str) -> None:
        """Respond with one resource: its document for browsers, else JSON.

        `name` is its URI or its key, which is part of links.
        """
        uri = name if "." in name else await self._knowledge.resources.find_by_key(name)
        reader = self._reader(uri)
        resource = await self._knowledge.get(uri, actor=reader) if uri else None
        if not uri:  # takes as long as for a hidden one: keys are hashes of texts to be guessed
            for action in ("read", "list"):
                await judge(self._knowledge.access(reader, action), [f"{CHUNK}.{name}"])
        is_browser = "text/html" in self._request.headers.get("accept", "")
        if resource is None and is_browser:
            await self._send_page(render_missing(), status=404)
            return
        if resource is None:
            raise NotFound("There is no such resource.")
        passage = await self._knowledge.read(resource, actor=reader)
        files = await self._knowledge.provenance(resource, actor=self._actor)
        if is_browser:
            document = await read_document(self._knowledge, resource, reader)
            await self._send_page(render_document(document, resource, passage, files))
            return
        fields: dict[str, Any] = {
            "format": resource.format,
            "content": resource.content,
            "fields": resource.fields,
        }
        fields |= {
            "provenance": list_provenance(resource, files),
            "subjects": resource.id.subjects,
        }
        await self._respond({**_encode_passage(passage), **fields})

    async def ontology(self) -> None:
        """Respond with the ontology in Turtle."""
        text = await self._knowledge.ontology_turtle(actor=self._actor)
        await self._send(text.encode(), "text/turtle; charset=utf-8", _PRIVATE)

    async def picture(self) -> None:
        """Respond with the ontology as SVG."""
        svg = await self._knowledge.picture(actor=self._actor)
        headers = {**_PRIVATE, "content-security-policy": POLICY}
        await self._send(svg.encode(), "image/svg+xml", headers)

    async def send_file(self, uri: str) -> None:
        """Respond with the original bytes of an uploaded file."""
        upload, data = await load_file(self._knowledge, uri, self._reader(uri))
        headers = {**_PRIVATE, **build_headers(upload)}
        await self._send(data, choose_media_type(upload), headers)

    async def show_window(self, uri: str) -> None:
        """Respond with the context window of a conversation."""
        window = await self._knowledge.get_window(uri, actor=self._reader(uri))
        resources = [
            {"id": it.uri, "tokens": it.id.tokens, "role": it.role, "content": it.content}
            for it in window.resources
        ]
        await self._respond({"id": window.id, "tokens": window.tokens, "resources": resources})

    async def optimize_window(self, uri: str) -> None:
        """Optimise a context window; respond whether it fits, and whether it has changed."""
        budget = _read_budget(await self._request.body())
        result = await self._knowledge.optimize_window(uri, budget, actor=self._reader(uri))
        await self._respond(asdict(result))

    def _reader(self, uri: str) -> Actor:
        """Return the actor that reads a resource."""
        return admit_stranger(self._actor, uri)

    def _count(self, name: str, default: int, most: int = _MOST) -> int:
        text = self._query.get(name) or str(default)
        if not text.isdecimal() or len(text) > 9:
            raise BadRequest(f"{name} is a number, such as {default}.")
        return min(int(text), most)

    async def _respond(self, value: Mapping[str, Any]) -> None:
        await self._send(dumps(value), "application/json", _PRIVATE)

    async def _send_page(self, page: str, *, status: int = 200) -> None:
        headers = {**_PRIVATE, "content-security-policy": POLICY}
        body = page.encode(errors="replace")
        await self._send(body, "text/html; charset=utf-8", headers, status=status)

    async def _send(
        self, body: bytes, content_type: str, headers: Mapping[str, str], *, status: int = 200
    ) -> None:
        if self._request.method == "HEAD":
            body = b""
        await self._request.respond(status, body, content_type=content_type, headers=headers)


def _read_budget(body: bytes) -> int | None:
    """Return the budget in a body, or `None` without one. Raises `BadRequest`."""
    try:
        value = loads(body) if body.strip() else {}
    except ValueError:
        raise BadRequest("The request body is no JSON.") from None
    budget = as_object(value).get("budget")
    if not isinstance(value, dict) or not (
        budget is None or (isinstance(budget, int) and not isinstance(budget, bool))
    ):
        raise BadRequest('The request body is {"budget": 4000}, or empty.')
    return budget


def _encode_passage(passage: Passage) -> Mapping[str, Any]:
    source = {"id": passage.id, "title": passage.title, "url": passage.url}
    return {**source, "score": passage.score, "text": passage.text}


_SANDBOX = "default-src 'none'; sandbox"
"""Content security policy of a file that a browser displays instead of saving it."""


async def store_file(knowledge: Knowledge, request: Request) -> JsonObject:
    """Store the file of a request, and return it as the `onUpload` of CopilotKit does.

    Its text is read afterwards, in the background: the question waits for it. Raises `BadRequest`:
    400 for a request that cannot be read, 422 for a file that is refused; `Refusal`, 429, for one
    that is to be sent again later; and the error of a limit that keeps it from being embedded.
    """
    if knowledge.settings.uploads == "off":
        raise NotFound("Files are not taken in here: the setting uploads is off.")
    await knowledge.embedder.check_budget()  # else no search would find it
    data, name, thread_id = await _read_request(request)
    user = request.caller.user
    try:
        async with reserve_storage(len(data)):
            job = knowledge.uploads.add(
                data,
                clean_name(name),
                conversation_identifier(user, thread_id),
                actor=build_actor(user, thread_id),
                thread=(user or "", thread_id),
            )
            upload = await job.wait_for_storage()
    except TooManyFiles as error:
        body = error_body("rate_limited", error.message, error.code)
        raise Refusal(error.status_code, body, {"retry-after": str(RETRY_AFTER)}) from error
    if upload.state == "refused":
        raise BadRequest(upload.message, 422, "FILE_REFUSED")
    return {
        "type": "url",
        "value": write_address(knowledge.link, upload.uri),
        "mimeType": upload.media_type,
        "metadata": {"filename": upload.name},
    }


async def load_file(knowledge: Knowledge, uri: str, reader: Actor) -> "tuple[Upload, bytes]":
    """Return an uploaded file. Raises `AccessDenied` for all but its owner, and `NotFound`."""
    from copilot_runtime.extensions.knowledge.uploads.uploads import (
        decode_upload,  # loads pyoxigraph
    )

    if not owns(reader, uri):
        raise AccessDenied
    resource = await knowledge.get(uri, actor=reader)
    if resource is None or resource.id.type != UPLOAD:
        raise NotFound("There is no such file.")
    upload = decode_upload(resource)
    if (data := await knowledge.uploads.read(upload)) is None:
        raise NotFound("There is no such file any more.")
    return upload, data


def choose_media_type(upload: "Upload") -> str:
    """Return the content type of a response: never one whose scripts a browser would run."""
    is_page = upload.media_type in ("", "text/html") or "xml" in upload.media_type
    return "application/octet-stream" if is_page else upload.media_type


def build_headers(upload: "Upload") -> Mapping[str, str]:
    """Return response headers that make a browser save the file."""
    plain = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\%' else "_"
        for char in upload.name
    )
    name = f"filename=\"{plain}\"; filename*=UTF-8''{quote(upload.name, safe='')}"
    return {"content-disposition": f"attachment; {name}", "content-security-policy": _SANDBOX}


async def _read_request(request: Request) -> tuple[bytes, str, str]:
    """Return file, name and thread id: of the fields `file` and `threadId`, or of a body alone."""
    query = dict(parse_qsl(request.query_string, keep_blank_values=True))
    body = await request.body()
    thread_id, name = query.get("threadId", ""), query.get("name", "")
    if request.content_type == "multipart/form-data":
        try:
            form = parse_form(request.headers["content-type"], body)
        except ValueError as error:
            raise BadRequest(str(error)) from error
        if (file := form.files.get("file")) is None:
            raise BadRequest("The form has no file in the field 'file'.")
        body, name = file.data, name or file.filename
        thread_id = thread_id or form.texts.get("threadId", "")
    if not thread_id:
        raise BadRequest("Say for which thread the file is: knowledge/files?threadId=…")
    try:
        check_conversation(thread_id)
    except Misuse as error:
        raise BadRequest(error.message) from error
    return body, name, thread_id
