"""Files that a page sends before its question, and gets back: `knowledge/files`."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.testclient import TestClient

from copilot_runtime import CopilotRuntime, Settings
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.extensions.knowledge.uploads.chat import CSV, EXE, PNG, ask, question, sources
from tests.extensions.knowledge.uploads.test_chat_files import Chat
from tests.in_one_test import in_one_test

FILES = "/graphql/knowledge/files"


def send(
    client: TestClient,
    data: bytes = CSV,
    name: str = "prices.csv",
    *,
    user: str = "ann",
    thread: str = "t1",
) -> Any:
    """Send a file as the body of a request."""
    return client.post(
        FILES,
        params={"threadId": thread, "name": name},
        content=data,
        headers={"x-user": user} if user else {},
    )


def at(url: str, name: str = "prices.csv", kind: str = "document") -> dict[str, Any]:
    """Return a part with the address of a file."""
    return {"type": kind, "source": {"type": "url", "value": url}, "metadata": {"filename": name}}


def test_a_file_comes_before_its_question_which_is_answered_from_it() -> None:
    chat = Chat()
    with chat.serve() as client:
        answer = send(client)
        sent = answer.json()
        events = ask(client, question("What does a quince cost?", at(sent["value"])))
        thread = client.get("/graphql/threads/t1/messages", headers={"x-user": "ann"}).json()

    assert answer.status_code == 201
    assert (sent["type"], sent["mimeType"]) == ("url", "text/csv")
    assert sent["metadata"] == {"filename": "prices.csv"}
    assert "fruit: quince; price: 41 crowns" in chat.prompt
    assert chat.media == []
    assert [it["title"] for it in sources(events)] == ["prices.csv"]
    assert thread["messages"][0]["content"][1]["source"]["value"] == sent["value"]


def test_a_form_is_taken_as_well() -> None:
    chat = Chat()
    with chat.serve() as client:
        form = {"files": {"file": ("prices.csv", CSV, "text/csv")}, "data": {"threadId": "t1"}}
        answer = client.post(FILES, headers={"x-user": "ann"}, **form)  # pyright: ignore[reportArgumentType]

    assert answer.status_code == 201
    assert answer.json()["metadata"] == {"filename": "prices.csv"}


def test_who_stores_as_much_as_allowed_sends_no_more_files() -> None:
    chat = Chat(limits={"storage_per_user": 3 * len(CSV)})
    with chat.serve() as client, ThreadPoolExecutor(5) as pool:
        files = [CSV + b"#" * number for number in range(5)]
        answers = [*pool.map(partial(send, client), files)]
        other = send(client, user="eve")
        refused = send(client, b"#", "more.csv")

    assert sorted(one.status_code for one in answers) == [201, 201, 201, 507, 507]
    assert refused.status_code == 507 and "of files; at most" in refused.text
    assert other.status_code == 201


def test_a_picture_reaches_the_model_as_its_bytes() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client, PNG, "a.png").json()["value"]
        ask(client, question("What is it?", at(url, "a.png", "image")))

    assert [(part.source, part.mime_type) for part in chat.media] == [("data", "image/png")]


def test_its_owner_alone_gets_a_file_back_and_no_browser_opens_it() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client, name='le "prix"\u202efdp.csv').json()["value"]
        mine = client.get(url, headers={"x-user": "ann"})
        head = client.head(url, headers={"x-user": "ann"})
        theirs = client.get(url, headers={"x-user": "eve"})
        nobodys = client.get(url)
        never = client.get(url.replace("Upload.", "Upload.0"), headers={"x-user": "eve"})

    assert mine.content == CSV
    assert head.content == b""
    assert mine.headers["content-type"].startswith("text/csv")
    assert mine.headers["content-disposition"].startswith(
        'attachment; filename="le _prix_ fdp.csv"; filename*=UTF-8'
    )
    assert mine.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in mine.headers["content-security-policy"]
    assert (theirs.status_code, nobodys.status_code) == (403, 403)
    assert theirs.json() == never.json()  # nobody learns which files others have


PAGE = b"<!doctype html><html><body><p>Hello</p><script>alert(1)</script></body></html>"
SVG = (
    b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
)


@in_one_test(("data", "name"), [(PAGE, "a.html"), (SVG, "a.svg"), (SVG, "a.png")])
def test_what_could_run_is_sent_as_what_cannot(data: bytes, name: str) -> None:
    chat = Chat()
    with chat.serve() as client:
        answer = send(client, data, name)
        found = client.get(answer.json()["value"], headers={"x-user": "ann"})

    assert found.content == data
    kind = found.headers["content-type"].partition(";")[0]
    assert kind in ("application/octet-stream", "text/plain")


def test_who_has_not_signed_in_gets_the_files_of_the_thread_they_are_in() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client, user="").json()["value"]
        assert client.get(url).content == CSV
        ask(client, question("quince?", at(url)), user="")

    assert "41 crowns" in chat.prompt


@in_one_test(("uploads", "is_there"), [("thread", False), ("owner", True)])
def test_a_file_of_another_thread_is_answered_from_if_the_operator_says_so(
    uploads: str, is_there: bool
) -> None:
    chat = Chat(uploads=uploads)
    with chat.serve() as client:
        url = send(client, thread="t2").json()["value"]
        ask(client, question("quince?", at(url)))

    assert ("41 crowns" in chat.prompt) is is_there
    assert ("It is not among the files of this conversation" in chat.prompt) is not is_there
    assert chat.media == []


def test_the_address_of_anothers_file_is_no_file() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client).json()["value"]
        events = ask(client, question("quince?", at(url)), user="eve")

    assert "It is not among the files of this conversation" in chat.prompt
    assert sources(events) == []


def test_an_address_elsewhere_stays_as_it_is() -> None:
    chat = Chat()
    address = "https://example.invalid/report.pdf"
    with chat.serve() as client:
        ask(client, question("?", at(address)))

    assert [(part.source, part.value) for part in chat.media] == [("url", address)]


def test_a_file_that_is_gone_is_said_to_be_gone() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client, PNG, "a.png").json()["value"]
        ask(client, question("Look", at(url, "a.png", "image")))
        client.delete("/graphql/threads/t1", headers={"x-user": "ann"}).raise_for_status()
        assert client.get(url, headers={"x-user": "ann"}).status_code == 404
        ask(client, question("Look", at(url, "a.png", "image")), run="r2")

    assert "It is not among the files of this conversation: attach it again." in chat.prompt


@in_one_test(
    ("data", "name", "reason"),
    [
        (b"", "a.csv", "The file is empty."),
        (EXE, "invoice.pdf", "application/x-executable"),
        (b"PK\x03\x04" + bytes(3000), "a.docx", "save it as PDF"),
        (b"x" * 5000, "large.txt", "larger than 4,000 bytes"),
    ],
)
def test_a_file_is_refused_with_a_sentence(data: bytes, name: str, reason: str) -> None:
    chat = Chat(upload_bytes=4000)
    with chat.serve() as client:
        answer = send(client, data, name)

    assert answer.status_code == 422
    assert reason in answer.json()["message"]
    assert chat.stored() == []


def test_a_scanner_looks_at_what_is_sent() -> None:
    def refuse(data: bytes, name: str) -> str:
        return "It has a virus."

    chat = Chat(scan=refuse)
    with chat.serve() as client:
        answer = send(client)

    assert (answer.status_code, answer.json()["message"]) == (422, "It has a virus.")


@in_one_test(
    ("request_of", "reason"),
    [
        ({"content": CSV}, "for which thread"),
        ({"content": CSV, "params": {"threadId": "a\x00b"}}, "thread id has characters"),
        ({"content": CSV, "params": {"threadId": "\u202e"}}, "thread id has characters"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, "no boundary"),
        ({"files": {"other": ("a.csv", CSV)}}, "no file in the field 'file'"),
    ],
)
def test_a_request_that_cannot_be_read_is_told_why(request_of: dict[str, Any], reason: str) -> None:
    chat = Chat()
    with chat.serve() as client:
        answer = client.post(FILES, **request_of)

    assert answer.status_code == 400
    assert reason in answer.json()["message"]


def test_other_methods_are_not_allowed() -> None:
    chat = Chat()
    with chat.serve() as client:
        assert client.get(FILES).headers["allow"] == "POST"
        assert client.post(f"{FILES}/x").headers["allow"] == "GET, HEAD"


def test_switched_off_nothing_is_taken_in() -> None:
    chat = Chat(uploads="off")
    with chat.serve() as client:
        answer = send(client)

    assert answer.status_code == 404
    assert "setting uploads is off" in answer.json()["message"]


def test_what_was_read_and_refused_cannot_be_got_back() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client, make_pdf(""), "scan.pdf").json()["value"]
        events = ask(client, question("What is in it?", at(url, "scan.pdf")))
        answer = client.get(url, headers={"x-user": "ann"})

    assert "The PDF has no text" in chat.prompt
    assert events[-1]["type"] == "RUN_FINISHED"
    assert answer.status_code == 404


def test_pages_of_other_origins_may_not_send_files_in_a_persons_name() -> None:
    chat = Chat()
    settings = Settings(threads="memory", cors_origins=("https://ours.invalid",))
    runtime = CopilotRuntime(chat.model, knowledge=chat.knowledge, settings=settings)
    with TestClient(runtime.app()) as client:
        headers = {"origin": "https://evil.invalid", "x-user": "ann"}
        files = {"file": ("a.csv", CSV)}
        answer = client.post(f"{FILES}?threadId=t1", files=files, headers=headers)

    assert answer.status_code == 403
    assert chat.stored() == []


def test_only_files_are_files() -> None:
    chat = Chat()
    with chat.serve() as client:
        url = send(client).json()["value"]
        ask(client, question("quince?", at(url)))
        chunk = next(key for key in chat.stored() if "Chunk" in key)
        uri = chunk.removeprefix("resources/").removesuffix(".json")
        answer = client.get(f"{FILES}/{quote(uri, safe='')}", headers={"x-user": "ann"})

    assert answer.status_code == 404
