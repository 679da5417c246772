"""Pages made to cost time or memory end soon, and nothing is ever loaded for them."""

import time
import tracemalloc
from collections.abc import Callable

import pytest

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from tests.in_one_test import in_one_test

SCOPE = '<div itemscope itemtype="https://schema.org/Thing"{}>'


def hostile() -> dict[str, tuple[Callable[[], str], str]]:
    """Return pages and what is said about them."""
    return {
        "elements in each other": (lambda: "<div>" * 100_000 + "x", "nested too deeply"),
        "attributes": (
            lambda: "<div " + " ".join(f"a{i}=1" for i in range(200_000)) + ">",
            "attributes",
        ),
        "attributes without spaces": (
            lambda: "<div " + "".join(f"a{i}='>'" for i in range(200_000)) + ">",
            "attributes",
        ),
        "size": (lambda: "x" * 17_000_000, "larger than"),
        "items that refer to all others": (
            lambda: (
                "<div id=a>"
                + "<p><i itemprop=n>x</i></p>" * 5000
                + "</div>"
                + (SCOPE.format(' itemref="a"') + "</div>") * 5000
            ),
            "too often",
        ),
        "a text in each of its elements": (
            lambda: SCOPE.format("") + '<div itemprop="p">' * 1900 + "<b>x</b>" * 20_000,
            "too often",
        ),
        "a long text in each of its elements": (
            lambda: SCOPE.format("") + '<div itemprop="p">' * 1900 + "x" * 5_000_000,
            "too often",
        ),
        "prefixes in each other": (
            lambda: "".join(
                '<div typeof="a" prefix="'
                + " ".join(f"p{i}x{j}: https://p/" for j in range(50))
                + '">'
                for i in range(1000)
            ),
            "too often",
        ),
        "names of one property": (
            lambda: (
                SCOPE.format("")
                + f'<i itemprop="{" ".join(f"p{i}" for i in range(110_000))}">x</i>'
            ),
            "statements",
        ),
    }


@in_one_test("name", hostile())
def test_a_page_beyond_the_limits_is_refused_soon(name: str) -> None:
    make, reason = hostile()[name]
    page = make().encode()
    began = time.process_time()
    with pytest.raises(LimitExceeded, match=reason):
        read_page(page, "https://ex.org/")
    assert time.process_time() - began < 20


@in_one_test(
    "page",
    [
        '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
        + SCOPE.format("")
        + "<i itemprop=p>&e;",
        '<!DOCTYPE html SYSTEM "http://127.0.0.1:9/x.dtd">' + SCOPE.format("") + "<i itemprop=p>a",
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
        + SCOPE.format("")
        + "<i itemprop=p>&b;",
    ],
)
def test_entities_of_others_are_not_read(page: str) -> None:
    said = read_page(page.encode(), "https://ex.org/").items
    assert "root:" not in str(said)
    assert "aaaa" not in str(said)


def test_a_long_attribute_is_no_crowd_of_attributes() -> None:
    words = "word " * 50_000
    page = SCOPE.format(f' data-x="{words}"') + "<i itemprop=name>a</i>"
    assert len(read_page(page.encode(), "https://ex.org/").items) == 1


def test_memory_stays_within_a_multiple_of_the_page() -> None:
    page = (SCOPE.format("") + "<i itemprop=name>name of it</i></div>") * 2000
    tracemalloc.start()
    try:
        read_page(page.encode(), "https://ex.org/")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(page)
