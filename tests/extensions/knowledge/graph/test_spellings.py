"""However a query is spelled, it looks nowhere else, and how it is spelled takes no time."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator

import pytest

from copilot_runtime.base.errors import Misuse, Refused
from copilot_runtime.extensions.knowledge.graph import GraphIndex, SparqlLimits
from tests.extensions.knowledge.graph.scenes import PEOPLE, build
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

ELSEWHERE = {
    "a keyword behind a number": "SELECT * { ?s ?p 1SERVICE<http://x>{?a ?b ?c} }",
    "behind a number with an exponent": "SELECT * { ?s ?p 1.e5SERVICE<http://x>{?a ?b ?c} }",
    "behind a flag": "SELECT * { ?s ?p trueSERVICE<http://x>{?a ?b ?c} }",
    "behind a flag and a dot, before a name": "SELECT * { ?s ?p true.SERVICE:x{?a ?b ?c} }",
    "before a name of no prefix": "PREFIX : <http://x> SELECT * { SERVICE:y { ?s ?p ?o } }",
    "before a name": "PREFIX x: <http://x> SELECT * { SERVICEx:y { ?s ?p ?o } }",
    "silent, without spaces": "SELECT * { SERVICESILENT<http://x>{?s ?p ?o} }",
    "in mixed letters": "SELECT * { sErViCe <http://x> { ?s ?p ?o } }",
    "behind a name that ends with a colon": "SELECT * { ?s ?p ex:.SERVICE<http://x>{} }",
    "behind a comment in an IRI with an escape": "ASK { ?s <u:\\u0070#> ?o . SERVICE <urn:x> {} }",
    "in what is a text only if a comparison is an IRI": (
        'SELECT * { ?s ?p ?a,?b FILTER(?a<?b#>"""\n) SERVICE <urn:x> {} #"""\n}'
    ),
    "in what is a text only if another one is an IRI": (
        "SELECT * { ?s ?p ?a,?b FILTER(?a<'''>'''&&1) SERVICE <urn:x> {} FILTER('''x'''>?b) }"
    ),
    "in what could be an IRI": "PREFIX : <urn:g> SELECT(1<2AS?x)FROM:x#>\n{?s ?p ?o}",
    "in a comparison": "SELECT * { FILTER(?a<?b&&EXISTS{GRAPH?g{?s?p?o}}||?c>?d) }",
    "a data set of a name": "PREFIX : <urn:g> SELECT * FROM:x { ?s ?p ?o }",
    "a named one": "PREFIX : <urn:g> SELECT * FROMNAMED:x { ?s ?p ?o }",
    "a data set behind a comment": "SELECT * # all\nFROM # of\n<file:///etc/passwd> { ?s ?p ?o }",
    "behind a prologue": "BASE <http://x/> PREFIX a: <b> PREFIX c: <d> SELECT * FROM <e> {}",
    "a graph of a variable": "SELECT * { GRAPH?g { ?s ?p ?o } }",
    "a graph of a name with its own prefix": (
        "PREFIX graph: <urn:> PREFIX : <urn:g/> SELECT * { GRAPH:x { ?s ?p ?o } }"
    ),
    "in a query in a query": "SELECT * { { SELECT * { { { SERVICE <x:y> {} } } } } }",
    "in a negation": "ASK { FILTER NOT EXISTS { MINUS { GRAPH <x:y> { ?s ?p ?o } } } }",
}

NO_QUERIES = {
    "an escape in a keyword": "SELECT * { \\u0053ERVICE <urn:x> { ?s ?p ?o } }",
    "a long escape": "SELECT * { \\U00000053ERVICE <urn:x> { ?s ?p ?o } }",
    "an escaped escape": "SELECT * { \\u005Cu0053ERVICE <urn:x> { ?s ?p ?o } }",
    "an update in escapes": "\\u0049NSERT DATA { ex:a ex:b ex:c }",
    "an update without a space": "INSERTDATA{ex:a ex:b ex:c}",
    "a query and an update": "ASK {} \\u003B INSERT DATA { ex:a ex:b ex:c }",
    "a data set without a space": "ASKFROM<urn:g>{?s ?p ?o}",
    "a keyword of letters that look alike": "SELECT * { \u0405ERVICE <urn:x> { ?s ?p ?o } }",
    "a space that is none": "SELECT\u00a0*\u2028{ ?s ?p ?o }",
}

HARMLESS = {
    "a name with a prefix like a keyword": "PREFIX graph: <urn:> ASK { ?s graph:x ?o }",
    "names that begin like one": "PREFIX services: <urn:> ASK { ?s services:from ex:graph }",
    "one in an absolute IRI": "ASK { FILTER(?x<<https://h/graph#SERVICE>) }",
    "one in an IRI of a triple": "ASK { ?s <urn:graph:service#from> <urn:graph#'1> }",
    "one in an escape of a text": 'ASK { ?s ?p "\\u0022 . SERVICE <urn:x> {}" }',
    "one in a long text": "ASK { ?s ?p '''a' '' SERVICE <urn:x> \\''' FROM''' }",
    "one behind a backslash in a name": "ASK { ?s ?p ex:a\\.SERVICE }",
    "one in a blank node": "ASK { ?s ?p _:service.graph . _:from ?p ?o }",
    "one in a tag of a language": 'ASK { ?s ?p "a"@en-graph }',
    "comparisons without spaces": "ASK { ?s ?p ?a,?b FILTER(?a<?b&&?b>?a||1<2) }",
    "comparisons of what is computed": "ASK { ?s ?p ?a FILTER(STR(?a)<STR(?s)||(1)<2||-1>-2) }",
    "IRIs in lists": "ASK { ?s ?p ?o FILTER(?o IN (<urn:a#b>,<urn:graph#c>)) }",
    "a description of something from elsewhere": "PREFIX from: <urn:> DESCRIBE from:x",
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def graph() -> AsyncIterator[GraphIndex]:
    graph = await build(PEOPLE)
    yield graph
    await graph.aclose()


@in_one_test("query", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_no_spelling_of_a_keyword_looks_elsewhere(graph: GraphIndex, query: str) -> None:
    with pytest.raises(Refused, match=r"SERVICE asks|FROM names|GRAPH names|may be an IRI"):
        await graph.sparql(query)


@in_one_test("query", NO_QUERIES.values(), ids=NO_QUERIES)
async def test_escapes_and_joined_words_are_no_keywords(graph: GraphIndex, query: str) -> None:
    with pytest.raises((Misuse, Refused)):
        await graph.sparql(query)
    assert await graph.count() == 7


@in_one_test("query", HARMLESS.values(), ids=HARMLESS)
async def test_what_only_looks_like_a_keyword_is_answered(graph: GraphIndex, query: str) -> None:
    assert (await graph.sparql(query)).cut == ""


async def test_a_data_set_that_nobody_noticed_is_the_one_of_the_asker(
    graph: GraphIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trust(query: str, limits: SparqlLimits) -> str:
        return "select"

    monkeypatch.setattr("copilot_runtime.extensions.knowledge.graph.index.check_query", trust)

    named = await graph.sparql("SELECT * FROM NAMED <urn:g> { GRAPH ?g { ?s ?p ?o } }")
    other = await graph.sparql("SELECT * FROM <file:///etc/passwd> { ?s ?p ?o }")

    assert named.rows == ()
    assert len(other.rows) == 7


SCRIPT = textwrap.dedent("""
    import json, resource, sys, time
    from copilot_runtime.base.errors import CopilotError
    from copilot_runtime.extensions.knowledge.graph.terms import parse_pattern
    from copilot_runtime.extensions.knowledge.graph.sparql import SparqlLimits, check_query
    from copilot_runtime.extensions.knowledge.graph.terms import Prefixes

    def read(text):
        for work in (
            lambda: check_query(text, SparqlLimits(length=len(text))),
            lambda: parse_pattern(text).parse(Prefixes()),
            lambda: Prefixes().parse_object(text),
        ):
            try:
                work()
            except CopilotError:
                pass

    def measure(token, before, size):
        text = before + token * (size // len(token))
        start = time.process_time()
        read(text)
        return time.process_time() - start

    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    size = int(sys.argv[1])
    read("SELECT * { ?s ?p ?o }")
    for token, before in json.load(sys.stdin):
        small = min(measure(token, before, size // 4) for _ in range(2))
        print(json.dumps([token, before, small, measure(token, before, size)]), flush=True)
""")
TOKENS = [
    *("a", "a.", ".", "..", ":", "a:", "a:b", "_:a", "\\", '\\"', "'", '"', "'''", "'''a", '"a"'),
    *("'\\'", "<a>", "<", "<a", "<'", "<#>'", "<#>", "<a>'", ">", "#", "(", ")", "{", "}", "?"),
    *("?a", "$a", "@a", "@a-", "@a-b", "1", "1.", ".1", "1e", "1e5", "-1", "[", "]", "(<", "<<("),
    *(
        "(<a>#'",
        "(a<b>'",
        "{<",
        "service",
        "graph:",
        "from:x(",
        "é",
        "·",
        "²",
        "%",
        "a%",
        "\\u0041",
    ),
    *(";", ",", "^", "|", "!", "&&", ">>", "a<b", "'''\\", "^^", '"@', '"^^a', " ", "\n", "\t"),
    *("\r\n", "#\n", "a b", '"""', '"""\\', "\"\"\"'''\\", '"\n', "'a\n", '""', '"""\n', '\\"""'),
]


def test_four_times_as_much_of_any_token_takes_about_four_times_as_long() -> None:
    size = int(os.environ.get("REPETITION_BYTES", "20000"))
    cases = [[token, before] for token in TOKENS for before in ("", "ASK { (")]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(size)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    measured = [json.loads(line) for line in ended.stdout.splitlines()]

    assert len(measured) == len(cases), (ended.returncode, ended.stderr, cases[len(measured)])
    slow = [it for it in measured if it[3] > 8 * it[2] + 0.15]
    assert slow == []
