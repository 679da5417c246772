"""Who may read traces, and what everybody else learns of them: nothing."""

from typing import Any

from tests.extensions.tracing.http.spans import LOCAL, serve, sign_in, store_of, trip
from tests.in_one_test import in_one_test

OPERATORS = {"telemetry": {"operators": ["ann"]}}
TRACE = "/graphql/traces/" + "a" * 32


def test_an_operator_who_signs_in_reads_traces_from_anywhere() -> None:
    served = serve(
        store_of(trip()), base_url="https://app.test", authenticate=sign_in, settings=OPERATORS
    )
    with served as client:
        headers = {"x-user": "ann", "x-forwarded-for": "203.0.113.7"}
        assert client.get(TRACE, headers=headers).status_code == 200


@in_one_test("user", [{}, {"x-user": "bob"}, {"x-user": "Ann"}])
@in_one_test(
    ("method", "path"),
    [
        ("GET", "/graphql/traces"),
        ("GET", TRACE),
        ("DELETE", TRACE),
        ("GET", "/graphql/traces/none"),
        ("GET", "/graphql/traces/none/such/path"),
        ("GET", "/graphql/traces/stats"),
        ("GET", "/graphql/traces/stream"),
        ("POST", "/graphql/traces/query"),
        ("PUT", "/graphql/traces"),
    ],
)
def test_others_get_the_same_answer_whatever_they_ask_for(
    user: dict[str, str], method: str, path: str
) -> None:
    with serve(store_of(trip()), authenticate=sign_in, settings=OPERATORS) as client:
        answer = client.request(method, path, headers=user)
    assert (answer.status_code, answer.json()["message"]) == (
        403,
        "Traces are for operators of this server.",
    )


def test_where_people_sign_in_and_nobody_is_named_nobody_reads_traces() -> None:
    with serve(store_of(trip()), authenticate=sign_in) as client:
        assert client.get(TRACE).status_code == 403
        assert client.get(TRACE, headers={"x-user": "ann"}).status_code == 403


@in_one_test("url", [LOCAL, "http://[::1]:8000"])
def test_without_authentication_only_this_machine_reads_traces(url: str) -> None:
    with serve(store_of(trip()), base_url=url) as client:
        assert client.get(TRACE).status_code == 200
        assert client.get(TRACE, headers={"host": "localhost:8000"}).status_code == 200
        assert client.get(TRACE, headers={"origin": url}).status_code == 200


@in_one_test(
    "headers",
    [
        {"x-forwarded-for": "203.0.113.7"},
        {"forwarded": "for=203.0.113.7"},
        {"x-real-ip": "203.0.113.7"},
        {"via": "1.1 proxy"},
        {"host": "app.test"},
        {"origin": "http://localhost:3000"},
        {"origin": "https://page.test"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_who_comes_through_a_proxy_or_from_another_page_reads_none(headers: dict[str, str]) -> None:
    settings = {"allowed_hosts": ["app.test"], "cors_origins": ["https://page.test"]}
    with serve(store_of(trip()), settings=settings) as client:
        assert client.get(TRACE, headers=headers).status_code == 403


@in_one_test(
    "more",
    [
        {"base_url": "http://192.0.2.1:8000"},
        {"base_url": "http://testserver"},
        {"settings": {"console": False}},
        {"settings": OPERATORS, "base_url": "http://192.0.2.1"},
    ],
)
def test_where_nobody_signs_in_other_machines_read_none(more: dict[str, Any]) -> None:
    with serve(store_of(trip()), **more) as client:
        assert client.get(TRACE).status_code == 403


@in_one_test(
    ("client", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1:8000", 200),
        ("::1", "localhost:8000", 200),
        ("203.0.113.7", "127.0.0.1:8000", 403),
        ("172.17.0.1", "localhost:8000", 403),
        ("127.0.0.1", "app.test", 403),
        ("a-socket", "localhost", 403),
    ],
)
def test_this_machine_reads_them_though_the_server_listens_to_all(
    client: str, host: str, status: int
) -> None:
    with serve(store_of(trip()), base_url="http://192.0.2.1:8000") as server:
        server._transport.client = (client, 4711)  # type: ignore[attr-defined]  # who asks
        assert server.get(TRACE, headers={"host": host}).status_code == status


def test_everybody_is_told_whether_they_may_read() -> None:
    path = "/graphql/traces/access"
    with serve(store_of(trip()), authenticate=sign_in, settings=OPERATORS) as client:
        answers = {user: client.get(path, headers={"x-user": user}) for user in ("ann", "bob")}
        answers["nobody"] = client.get(path)
        assert client.post(path).status_code == 405
    may_read = {user: answer.json()["may_read"] for user, answer in answers.items()}
    assert may_read == {"ann": True, "bob": False, "nobody": False}
    assert {answer.status_code for answer in answers.values()} == {200}


def test_a_client_elsewhere_reads_none_though_the_server_listens_here() -> None:
    with serve(store_of(trip())) as client:
        client._transport.client = ("203.0.113.7", 4711)  # type: ignore[attr-defined]  # as a proxy says it
        assert client.get(TRACE).status_code == 403
