"""A file that repeats itself holds nobody up: four times the bytes are four times the work.

Each reader gets everything that its grammar knows, over and over, in a process that the kernel ends
if one of them takes for ever. `REPETITION_BYTES=200000` says how much of it.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from copilot_runtime.base.jsontext import dumps
from tests.in_one_test import in_one_test

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
from copilot_runtime.extensions.knowledge.ingestion.pipeline import read_source
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
