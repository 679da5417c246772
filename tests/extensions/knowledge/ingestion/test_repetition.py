"""A file that repeats itself holds nobody up: four times the bytes are four times the work.

Each reader gets everything that its grammar knows, over and over, in a process that the kernel ends
if one of them takes for ever. `REPETITION_BYTES=200000` says how much of it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from copilot_runtime.base.jsontext import dumps
from tests.in_one_test import in_one_test
from tests.processes import Program, finished, running

ITEM = '<!doctype html><div itemscope itemtype="https://schema.org/Thing" itemid="https://e/1">'
RDFA = '<!doctype html><div vocab="https://schema.org/" typeof="Thing" resource="https://e/1">'
SCRIPT = '<!doctype html><script type="application/ld+json">'
THING = '{"@context": "https://schema.org", "@type": "Thing", '

SIZE = int(os.environ.get("REPETITION_BYTES", "40000"))

Frame = tuple[str, str]
"""What stands before and behind the repeated token."""

MARKUP = (
    "< > \" ' & &amp; &# &nbsp; &a <!-- --> <!----> <! <![CDATA[ ]]> <? <?xml </ </p> <p> <p <b> "
    "<a> <table> <tr> <td> <select> <form> <h1> <h1>a</h1> <h2>a <li> <ul><li> <br> <br/> <nav> "
    "<script> <style> <svg> <template> <title> <head> <body> <html> <meta <base = a=1 / <div> "
    "<div/> <b><p> <a><b> <table><b> <h1>a</h1><h2>b</h2><p>c</p> <x:y> \0 \n \t x é \u3000"
)
ITEMS = [
    *("<i itemprop=n>a</i>", "<div itemprop=n>", "<div itemprop=p itemscope>", "<div itemscope>"),
    *("<div itemprop=p itemscope itemtype=https://schema.org/T itemid=a>", "<i itemref=a>"),
    *("<i id=a itemscope itemref=a>", "<a itemprop=url href=a>", "<time itemprop=d>1</time>"),
    *("<meter itemprop=m value=1>", "<b itemprop=n lang=de>a", "<i itemprop=n>a<b>b</b></i>"),
]
PROPERTIES = [
    *("<i property=name>a</i>", "<i property=name>", "<i typeof=Thing>", "<div about=_:a>"),
    *("<div property=p typeof=T>", "<div rel=schema:knows>", "<div rev=schema:knows resource=a>"),
    *('<div prefix="a: http://b">', "<div vocab=a>", "<i property=n content=x datatype=xsd:date>"),
]
ATTRIBUTES: dict[Frame, str] = {
    (f'{ITEM[:-1]} itemref="', '">'): "a | |\n",
    (f'{ITEM}<i itemprop="', '">x</i>'): "a |a|http://a |a:",
    ('<!doctype html><p itemscope itemtype="', '"><i itemprop=n>x'): "a |https://schema.org/T |/",
    (f'{ITEM}<a itemprop=url href="', '">'): "a|/|../|/.|./|:|%| |\n|é|//|[|]|@|?|#|&",
    (f'{ITEM}<time itemprop=n datetime="', '">'): "1|-|P|1Y|T|P1D|PT|2020-01-01|.|+",
    (f'{ITEM}<meter itemprop=n value="', '">'): "1|.|-|e|1.|1e",
    (f'{ITEM}<i itemprop=n lang="', '">x</i>'): "a|-|a-|a_",
    (f'{ITEM}<i itemprop=n content="', '">'): "\u201c| |\n|&quot;",
    (f'{RDFA[:-1]} prefix="', '"><i property=name>x</i>'): "a|a:|a: |: |a: b |a.-",
    (f'{RDFA}<i property="', '">x</i>'): "a |a:|a:b |schema:n ",
    ('<!doctype html><meta charset="', '">x'): 'a|-| |="',
    ('<!doctype html><base href="', f'">{ITEM}<a itemprop=url href=x>'): "a|/|../|a:|?|#",
}
JSON_PIECES = '[|{|"|\\|{"a":|{"@context":|[{|{},|[],|"a",|1,|-|e|//|<!--|-->|]]>| |\n|\\u0041|\\"'
JSON_THINGS = [
    '{"@type": "Thing", "name": "a"},',
    '{"@type": "Thing", "knows": {"@type": "Thing", "name": "x"}},',
    '{"@context": "https://schema.org", "@type": "Thing", "name": "a"},',
    '{"@id": "_:a", "@type": "Thing", "knows": {"@id": "_:b"}},',
]
MARKDOWN = (
    "#¦# ¦# a\n¦###### ¦*¦* ¦- ¦- a\n¦- a\n\n¦-¦-\n¦---\n¦===\n¦a\n===\n¦=¦`¦```¦```\n¦``` ¦~¦~~~\n"
    "¦> a\n¦|¦|-¦|a|b|\n¦[¦](¦[a](b)¦[a](¦(¦[a]: b\n¦![¦_¦**a**¦<¦<!--¦-->¦\\¦&¦1. a\n¦+ ¦\t¦    ¦ "
    "¦\n¦ \n¦a¦a ¦a\n¦title: a\n¦\r¦\r\n¦\x0b¦\u2028¦. ¦a. ¦\u3002¦é¦😀¦ #¦## #\n¦  - a\n¦a/"
)
TABLES = ',¦;¦\t¦"¦""¦",¦"\n¦",\n¦a,¦a,b\n¦"a","b"\n¦"a\n¦\n¦\r¦a\n¦a¦ ¦\'¦,"¦",",¦a,"b\n¦|¦é,'


def frame(frames: list[Frame], tokens: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(before, token, after) for (before, after), token in product(frames, tokens)]


CASES: dict[str, list[tuple[str, str, str]]] = {
    "x.html": [
        *frame(
            [("<!doctype html><body><p>x", "x"), (ITEM, "x</div>"), ("", "x")], MARKUP.split(" ")
        ),
        *frame([(ITEM, "")], ITEMS),
        *frame([(RDFA, "")], PROPERTIES),
        *(case for at, tokens in ATTRIBUTES.items() for case in frame([at], tokens.split("|"))),
    ],
    "json-ld.html": [
        *frame([(SCRIPT, "</script>")], JSON_PIECES.split("|")),
        *frame([(f'{SCRIPT}{THING}"name": "', '"}</script>')], JSON_PIECES.split("|")),
        *frame([(f'{SCRIPT}{THING}"datePublished": "', '"}</script>')], ["1", "-", "P1D"]),
        *frame([(f'{SCRIPT}{THING}"@graph": [', "1]}</script>")], JSON_THINGS),
    ],
    "x.md": frame(
        [("", "x"), ("# x", "y"), ("---\n", "\n---\nx")],
        MARKDOWN.split("¦"),
    ),
    "x": frame([("", "x"), ("- a", "\nx")], MARKDOWN.split("¦")),
    "x.csv": frame([("", "x"), ("a,b\n1,2\n", "x"), ('a,b\n"', '"\n')], TABLES.split("¦")),
}

READER = """
import json, resource, sys, time
from pathlib import Path
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge.ingestion import ItemForm
from copilot_runtime.extensions.knowledge.ingestion.processor import read_source
from copilot_runtime.extensions.knowledge.ingestion.sources import Source

name, size, cases = json.load(sys.stdin)
file = Path(sys.argv[1])

def measure(before, token, after, size):
    file.write_text(before + token * (size // len(token.encode())) + after, "utf-8", newline="")
    began = time.process_time()
    try:
        read_source(Source(name, name, file), "https://example.com/", ItemForm())
    except CopilotError:
        pass
    return time.process_time() - began

measure("<p itemscope>", "x", "", 10)
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for case in cases:
    print(json.dumps(case), flush=True)
    small, large = measure(*case, size // 4), measure(*case, size)
    for again in range(3):
        if large <= 8 * max(small, 0.01):
            break
        small, large = max(small, measure(*case, size // 4)), min(large, measure(*case, size))
    else:
        sys.exit(f"{small:.3f} s, and of four times the bytes {large:.3f} s")
"""


@in_one_test("name", CASES)
def test_the_work_for_a_file_grows_like_the_file(name: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", READER, f"{tmp_path}/file"],
        input=dumps([name, SIZE, CASES[name]]),
        capture_output=True,
        check=False,
    )
    last = ended.stdout.decode().splitlines()[-1:]
    assert (ended.returncode, ended.stderr.decode()) == (0, ""), last


ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "copilot_runtime"]
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("COPILOT")} | {
    "PYTHONPATH": str(ROOT),
    "COPILOT_KNOWLEDGE_STORAGE": "local:store",
    "COPILOT_KNOWLEDGE_EMBEDDER": "hashing",
}


def ingest(folder: Path, *paths: str) -> Any:
    done = finished([*COMMAND, "knowledge", "ingest", *paths, "--json"], cwd=folder, env=ENVIRON)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def find(url: str, question: str) -> list[str]:
    """Return the texts that the server finds, the best first."""
    with urlopen(f"{url}/knowledge/search?q={question}") as response:
        return [one["text"] for one in json.load(response)["results"]]


def find_at_last(url: str, question: str, text: str) -> None:
    began = time.monotonic()
    while text not in "".join(find(url, question)[:1]):  # a search looks every five seconds
        assert time.monotonic() - began < 60
        time.sleep(0.05)


def read_url(server: Program) -> str:
    return server.until(r"http://[^\s/]+:\d+")[0] + "/graphql"


def test_what_it_takes_in_is_found_by_the_server_and_embedded_once(tmp_path: Path) -> None:
    for folder, text in (("old", "Soup on Mondays"), ("new", "A walrus in the harbour")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(f"# Page\n\n{text}.\n")
    environ = ENVIRON | {"COPILOT_KNOWLEDGE_SOURCES": "old", "COPILOT_THREADS": "memory"}
    serve = [*COMMAND, "serve", "--port", "0"]
    with running(serve, cwd=tmp_path, env=environ) as server:
        url = read_url(server)
        find_at_last(url, "soup", "Soup on Mondays")

        first = ingest(tmp_path, "new")
        find_at_last(url, "walrus", "A walrus in the harbour")
        find_at_last(url, "soup", "Soup on Mondays")

    embedded = [report["vectors"]["added"] for report in (first, ingest(tmp_path, "old", "new"))]
    assert embedded == [1, 0]
    assert [*(tmp_path / "store" / "vectors").rglob("lock.json")] == []
