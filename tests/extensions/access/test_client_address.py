"""`copilot-runtime serve` behind a proxy: whose word about the address of a client it takes."""

import json
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from tests.cli.test_cli import Start, url_in
from tests.in_one_test import in_one_test

CONFIG = """
limits: {requests_per_user: 1/hour}
audit: {file: audit.jsonl, reads: true}
access: {authenticate: [api_keys], anonymous: true}
serve_a2a: true
allowed_hosts: [app.example]
"""
KNOWN = "proxy: {addresses: [127.0.0.1]}"


def ask(url: str, path: str, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(url.removeprefix("http://"))
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", f"/graphql/{path}", headers={"host": "app.example", **names})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


@in_one_test(
    ("config", "statuses", "addresses"),
    [
        (CONFIG, [200, 429, 429], {"127.0.0.1"}),
        (CONFIG + KNOWN, [200, 200, 429], {"203.0.113.7", "203.0.113.8"}),
    ],
)
def test_nobody_chooses_an_address_but_by_a_proxy_that_is_named(
    tmp_path: Path, config: str, statuses: list[int], addresses: set[str]
) -> None:
    (tmp_path / "copilot.yml").write_text(config)
    clients = ["203.0.113.7", "10.9.9.9, 203.0.113.8", "203.0.113.8"]
    with ExitStack() as stack:
        url = url_in(Start(tmp_path, stack)())
        found = [ask(url, "threads", x_forwarded_for=client)[0] for client in clients]
        for number in range(50):
            last = f"203.0.113.{7 + number % 2}"
            forged = {"x_forwarded_for": f"10.0.0.{number}, {last}", "authorization": "Bearer bad"}
            assert ask(url, "threads", **forged)[0] == 401

    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert found == statuses
    assert {line["address"] for line in lines} == addresses
    refused = [line for line in lines if line.get("status") == 401]
    assert 20 * len(addresses) <= len(refused) <= 40 * len(addresses)


@in_one_test("proxies", ["", KNOWN])
def test_urls_begin_as_the_proxy_was_asked(tmp_path: Path, proxies: str) -> None:
    (tmp_path / "copilot.yml").write_text(CONFIG + proxies)
    with ExitStack() as stack:
        url = url_in(Start(tmp_path, stack)())
        card = "a2a/default/.well-known/agent-card.json"
        behind = ask(url, card, x_forwarded_proto="https", x_forwarded_for="203.0.113.7")[1]
        forged = ask(url, card, x_forwarded_proto="gopher", x_forwarded_for="203.0.113.8")[1]

    assert b'"https://app.example/graphql/a2a' in behind
    assert b"https://app.example" not in forged
