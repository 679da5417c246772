"""Documents of all kinds become chunks that say where they stand."""

import io
import json
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyoxigraph import Literal

from copilot_runtime.base.errors import CopilotError, LimitExceeded, MissingPackage
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.ingestion import (
    Document,
    UnreadableDocument,
    pdf,
    read_document,
    sandbox,
)
from copilot_runtime.extensions.knowledge.ingestion.chunks import (
    Chunk,
    ChunkPosition,
    pack_passages,
)
from copilot_runtime.extensions.knowledge.ingestion.documents import detect_media_type
from copilot_runtime.extensions.knowledge.ingestion.sandbox import run_in_sandbox
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.extensions.knowledge.ingestion.office import make_docx
from tests.extensions.knowledge.ingestion.pdf import encrypt_pdf, make_pdf
from tests.in_one_test import in_one_test


def chunks(document: Document) -> list[tuple[str, JsonObject]]:
    return [(chunk.text, chunk.place.encode()) for chunk in document.chunks]


PNG = b"\x89PNG\r\n\x1a\n\x00\x00"
TABLE = "name,age\nAnn,31\nBob,27\n"


@in_one_test(
    ("data", "name", "media_type"),
    [
        (b"<!doctype html><p>x", "x.txt", "text/html"),
        (b"\xef\xbb\xbf\n <!-- a --><HTML>", "", "text/html"),
        (b'<?xml version="1.0"?><html xmlns="x">', "", "text/html"),
        (b"Some <b>bold</b> text</p>", "x.html", "text/html"),
        (b"Some <b>bold</b> text</p>", "x.txt", "text/plain"),
        ("<!doctype html><p>x".encode("utf-16"), "", "text/html"),
        ("Some <b>bold</b> text</p>".encode("utf-16"), "x.html", "text/html"),
        ("# Title".encode("utf-16"), "", "text/markdown"),
        (b"\n%PDF-1.4", "x.html", "application/pdf"),
        (b"\x1b%-12345X@PJL\n%PDF-1.4", "x.html", "application/pdf"),
        (b"HTTP/1.1 200 OK\r\n\r\n%PDF-1.4\n1 0 obj\nstartxref\n0\n%%EOF\n", "", "application/pdf"),
        (b"<p>x</p>\n%PDF-1.4\n1 0 obj\n%%EOF", "x.html", "application/pdf"),
        (b"It begins with\n%PDF-1.4\nand a number.", "", "text/plain"),
        (b"# Files\n\nA PDF begins with `%PDF-1.4`.\n", "", "text/markdown"),
        (b"%PDF- is how it begins", "", "text/plain"),
        (b"ID3\x04\x00", "", "audio/mpeg"),
        (b"ID3 tags are at the start of a file.", "", "text/plain"),
        (b"MZ\x90\x00\x03", "", "application/x-executable"),
        (b"MZ-800 manual", "", "text/plain"),
        (b"GIF89a\x01\x00", "", "image/gif"),
        (b"GIF8 is how it begins", "", "text/plain"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "", "video/x-msvideo"),
        (b"\x00\x00\x00\x18ftypmp42", "", "video/mp4"),
        (b"\x00\x00\x00\x18ftypheic", "", "image/heif"),
        (b"the ftyp box", "", "text/plain"),
        (PNG, "x.html", "image/png"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8", "", "image/webp"),
        (b"RIFF\x00\x00\x00\x00WAVE", "", "audio/wav"),
        (b"PK\x03\x04", "x.docx", "application/zip"),
        (b"a\x00b", "x.txt", "application/octet-stream"),
        (b"# Title\n\ntext", "", "text/markdown"),
        (b"# Title\n\ntext", "x.txt", "text/plain"),
        (b"plain", "README.md", "text/markdown"),
        (b"see [this](http://x) there", "", "text/markdown"),
        (b"- a\n\n- b\n", "", "text/markdown"),
        (b"- a\n\nb\n", "", "text/plain"),
        (b"#\nb\n", "", "text/plain"),
        (TABLE.encode(), "", "text/csv"),
        (TABLE.encode(), "x.html", "text/csv"),
        (b"a;b\n1;2\n3;4\n", "", "text/csv"),
        (b"a\tb\n1\t2\n", "", "text/csv"),
        (b"a,b\n1,2\n", "x.csv", "text/csv"),
        (b"Yes, no.\nNo, yes.\n", "", "text/plain"),
        (b"One, two.\nThree.\nFour, five, six.\n", "x.csv", "text/csv"),
        (b"One, two.\nThree.\nFour, five, six.\n", "", "text/plain"),
        (b"One.\nTwo.\n", "x.csv", "text/plain"),
        (b"", "x.csv", "text/plain"),
        ("é,b\n".encode("cp1252") * 9000, "", "text/csv"),
    ],
)
def test_the_kind_of_a_document_is_that_of_its_bytes(
    data: bytes, name: str, media_type: str
) -> None:
    assert detect_media_type(data, name) == media_type


RUSSIAN = "\u041f\u0430\u0440\u043e\u043c \u0443\u0445\u043e\u0434\u0438\u0442 \u0432 "
SHOPS = (
    "\u5e97\u540d \u58f2\u4e0a \u5099\u8003\n\u65b0\u5bbf 120 \u826f\u3044\n\u6e0b\u8c37 90 \u96e8"
)
JAPANESE = "\u5c71\u7530\u306f\u6771\u4eac\u306b\u4f4f\u3093\u3067\u3044\u307e\u3059\u3002"
GUESSED = "The encoding was guessed: {}. Save it as UTF-8 to be sure."


@in_one_test(
    ("data", "name", "text", "warnings"),
    [
        ((RUSSIAN * 8).encode("cp1251"), "x.txt", RUSSIAN * 8, [GUESSED.format("cp1251")]),
        (SHOPS.encode("cp932"), "", SHOPS, [GUESSED.format("cp932")]),
        ((JAPANESE * 8).encode("cp932"), "x.md", JAPANESE * 8, [GUESSED.format("cp932")]),
        ("Caf\u00e9".encode("cp1252"), "x.txt", "Caf\u00e9", [GUESSED.format("cp1252")]),
        ("Caf\u00e9 au lait".encode("utf-16-le"), "x.txt", "Caf\u00e9 au lait", []),
        (RUSSIAN.encode("utf-32"), "x.txt", RUSSIAN, []),
        (
            RUSSIAN.encode() + b"\xff",
            "x.txt",
            f"{RUSSIAN}\ufffd",
            ["Its encoding is utf-8, but for 1 character in line 1."],
        ),
        (JAPANESE.encode("iso2022_jp"), "x.txt", JAPANESE, []),
        ("\ud558\ub298, \ub545".encode("iso2022_kr"), "", "\ud558\ub298, \ub545", []),
        (
            b'{"u": "gr\\u00f6\\u00dfer \\ud83d\\ude00"}',
            "x.json",
            '{"u": "gr\u00f6\u00dfer \U0001f600"}',
            [],
        ),
        (b'[1]\n["\\u00e9\\\\u00e9\\u0022"]', "x.jsonl", '[1]\n["\u00e9\\\\u00e9\\u0022"]', []),
        (b"{\\u00e9}", "x.txt", "{\\u00e9}", []),
        (b"<html><meta charset='shift_jis'>" + JAPANESE.encode("cp932"), "", JAPANESE, []),
        (
            b"<?xml version='1.0' encoding='windows-1251'?><html>" + RUSSIAN.encode("cp1251"),
            "",
            RUSSIAN,
            [],
        ),
        (b"<html><meta charset=iso-8859-1>" + RUSSIAN.encode(), "", RUSSIAN, []),
        (b"<html><meta charset=punycode>a-b", "", "a-b", []),
        (
            b"<html><meta charset=utf-8>Caf\xe9 au lait",
            "",
            "Caf\u00e9 au lait",
            [GUESSED.format("cp1252")],
        ),
    ],
)
def test_a_text_is_read_in_its_encoding_or_says_that_it_was_guessed(
    data: bytes, name: str, text: str, warnings: list[str]
) -> None:
    document = read_document(data, name)
    assert "".join(chunk.text for chunk in document.chunks).strip() == text.strip()
    assert document.warnings == warnings


@in_one_test(
    ("text", "codec"),
    [
        ("Cena brutto: 120 zł", "cp1250"),
        ("id,name\n1,Łukasz Dąbrowski\n2,Michał Wójcik\n", "cp1250"),
        ("A szerződést tegnap délelőtt aláírták.", "cp1250"),
        ("id,name\n1,Kovács Gergő\n2,Szűcs Éva\n", "cp1250"),
        ("Prodej vzrostl o dvanáct procent.", "cp1250"),
        ("Nu mă pot autentifica în contul meu.", "cp1250"),
        ("Der Verbrauch beträgt 5 m³ im Jahr.", "cp1252"),
        ("Várias razões", "cp1252"),
        ("¿Dónde está el tamaño?", "cp1252"),
        ("Góðan daginn", "cp1252"),
        ("Geçmiş ve gelecek için", "cp1254"),
        ("JavaScript 程式", "big5"),
    ],
)
def test_a_short_text_has_the_letters_of_its_language(text: str, codec: str) -> None:
    document = read_document(text.encode(codec), "x.txt")
    assert "\n".join(it.text for it in document.chunks) == text.strip()


def test_a_text_whose_encoding_cannot_be_told_is_refused() -> None:
    with pytest.raises(CopilotError, match="The encoding of the text is not known"):
        read_document(bytes(range(128, 256)) * 3, "x.txt")


def test_a_page_has_its_headings() -> None:
    page = b"""<title> A  page </title><body><nav>Menu</nav><p>Before</p><h1>One</h1><p>First
        <b>text</b>.</p><ul><li>a</li><li>b</li></ul><h2>Two <i>b</i></h2>Loose text<h2></h2>
        <p>Under one</p><h1>Three</h1><script>no()</script><table><tr><td>1</td><td>2</td></tr>
        </table><h7>x</h7>"""
    document = read_document(page, "x.html")
    assert document.title == "A page"
    assert chunks(document) == [
        ("Before", {}),
        ("First text.\na\nb", {"heading": "One"}),
        ("Loose text", {"heading": "One \u203a Two b"}),
        ("Under one", {"heading": "One"}),
        ("1 | 2\nx", {"heading": "Three"}),
    ]


@in_one_test(
    ("page", "title"),
    [
        (b"<h1>Head</h1>", "Head"),
        (b"<h1>One</h1>a<h1>Two</h1>b", "x.html"),
        (b"<p>x</p>", "x.html"),
        (b"<!-- -->", "x.html"),
    ],
)
def test_a_page_without_a_title_has_its_heading_or_its_name(page: bytes, title: str) -> None:
    assert read_document(page, "a/x.html").title == title


def test_a_text_in_markdown_has_headings_and_lines() -> None:
    text = """---
title: "The title"
---
Before.

Head
====
Under head,
in two lines.
```
# no heading
```
## Second ##

~~~
a
```
~~~
### Closed on Monday
### Closed on Tuesday
Third
---
end"""
    document = read_document(text.encode(), "x.md")
    assert document.title == "The title"
    assert chunks(document) == [
        ("Before.", {"lines": [4, 4]}),
        (
            "Under head,\nin two lines.\n```\n# no heading\n```",
            {"heading": "Head", "lines": [8, 12]},
        ),
        (
            "~~~\na\n```\n~~~\nClosed on Monday\nClosed on Tuesday",
            {"heading": "Head \u203a Second", "lines": [15, 20]},
        ),
        ("end", {"heading": "Head \u203a Third", "lines": [23, 23]}),
    ]


def test_a_comment_in_markdown_is_left_out_but_not_in_code() -> None:
    text = "a <!-- one\ntwo --> b\n```\n<!-- code -->\n```\n`<!--` <!-- --> c <!-- d\n"
    [chunk] = read_document(text.encode(), "x.md").chunks
    assert chunk.text.split("\n") == ["a", " b", "```", "<!-- code -->", "```", "`<!--`  c <!-- d"]
    text = "[//]: # (no)\n[a b]: <> 'no'\na\n[//]: # (in a paragraph)\n\n[x]: # no\n[y]: #top\n"
    [chunk] = read_document(text.encode(), "x.md").chunks
    assert chunk.text.split("\n") == ["a", "[//]: # (in a paragraph)", "[x]: # no", "[y]: #top"]


def test_the_front_matter_of_markdown_is_read_with_the_text() -> None:
    text = "---\ntitle: >-\n  Leave\n  of absence\ntags: [vacation]\n\nsecret: no\n---\n# H\ntext\n"
    document = read_document(text.encode(), "x.md")
    assert document.title == "Leave of absence"
    assert chunks(document) == [
        ("tags: [vacation]\nsecret: no", {"lines": [5, 7]}),
        ("text", {"heading": "H", "lines": [10, 10]}),
    ]


@in_one_test(
    ("text", "title"),
    [
        ("---\nname: x\n---\n# H\n", "H"),
        ("\n---\ntitle: T\ntags: a\n---\ntext\n", "T"),
        ("---\ntitle: T\ntags:\n  - a\n\n# H\n", "T"),
        ("---\nTitle: [T\nname: x\n----\n# H\n", "H"),
        ('+++\ntitle = "T"\n+++\n# H\n', "T"),
        ("---\nopen", "x.md"),
        ("# H\n", "H"),
        ("## H\na\n### I\nb\n### J\n", "H"),
        ("## Why?\na\n## When?\nb\n", "x.md"),
        ("## Before\na\n# After\nb\n", "x.md"),
        ("# C#\n", "C#"),
        ("# C# #\n", "C#"),
        ("#  C  ##  \n", "C"),
        ("# ##\n", "x.md"),
        ("#C\n", "x.md"),
        ("####### C\n", "x.md"),
        ("", "x.md"),
    ],
)
def test_the_title_of_markdown(text: str, title: str) -> None:
    assert read_document(text.encode(), "x.md").title == title


def test_paragraphs_of_a_text_have_lines() -> None:
    document = read_document(b"One\ntwo\n\n\nthree\r\n", "x.txt")
    assert chunks(document) == [("One\ntwo\nthree", {"lines": [1, 5]})]


def test_rows_of_a_table_say_the_names_of_their_columns() -> None:
    table = 'name,age,\n"Ann, the\nfirst",31,x\n\n Bob ,,\n,,,extra\n'
    document = read_document(table.encode("utf-8-sig"), "x.csv")
    assert chunks(document) == [
        ("name: Ann, the\nfirst; age: 31; x\nname: Bob\nextra", {"rows": [2, 5]})
    ]


TABLES = {
    "Ann,31\nBob,27\n": (
        ["Ann; 31", "Bob; 27"],
        ["A table has no header: its values have no names of columns."],
    ),
    "Ann,idle\nBob,busy\nCid,idle\n": (
        ["Ann; idle", "Bob; busy", "Cid; idle"],
        ["A table has no header: its values have no names of columns."],
    ),
    "Sales of May\n\na;b\n1;2,5\n": (["Sales of May", "a: 1; b: 2,5"], []),
    "By;Ann\nDay;2026-01-05\n\na;b;c;d\n1;2;3;4\n5;6;7;8\n": (
        ["By; Ann", "Day; 2026-01-05", "a: 1; b: 2; c: 3; d: 4", "a: 5; b: 6; c: 7; d: 8"],
        [],
    ),
    "sep=;\na;b\n1;2\n": (["a: 1; b: 2"], []),
    "x,y\nr1,1,2\nr2,3,4\n": (["r1; x: 1; y: 2", "r2; x: 3; y: 4"], []),
    "city,n,m\nOslo,1,2\n\nBy day\nday,rain,sun\n2026-01-05,3,4\n": (
        ["city: Oslo; n: 1; m: 2", "By day", "day: 2026-01-05; rain: 3; sun: 4"],
        ["The file is read as 2 tables."],
    ),
    "# made by a till\ncity,n\n,kg\nOslo,1\n# closed\n": (
        ["# made by a till", "city; n", "city: Oslo; n kg: 1", "# closed"],
        [],
    ),
    "city,n,m\nOslo,1,2\nBy day\nday,rain,sun\n2026-01-05,3,4\n2026-01-06,5,6\n": (
        [
            *("city: Oslo; n: 1; m: 2", "By day"),
            *("day: 2026-01-05; rain: 3; sun: 4", "day: 2026-01-06; rain: 5; sun: 6"),
        ],
        ["The file is read as 2 tables."],
    ),
    "city,n,m\nOslo,1,2\nRome,closed,?\nBonn,3,4\n": (
        ["city: Oslo; n: 1; m: 2", "city: Rome; n: closed; m: ?", "city: Bonn; n: 3; m: 4"],
        [
            "Line 3 may begin another table, and is read as a row of the one above: "
            "an empty line before it would separate them."
        ],
    ),
    """a,b\n1,cm\n2,\"\"\"\"\n3,''\n4,idem\n5,"=""07"\"\"\n6,"=\"\""\n""": (
        ["a: 1; b: cm", 'a: 2; b: "', "a: 3; b: ''", "a: 4; b: idem", "a: 5; b: 07", 'a: 6; b: ="'],
        [],
    ),
    "Konto:;DE89;\nZeitraum:;01.01.2026 - 31.01.2026;\nAnfangssaldo;1.000,00;EUR\n\n"
    "Tag;Wert;Zweck;Soll;Haben;W\u00e4hrung\n05.01.2026;05.01.2026;Miete;850,00;;EUR\n"
    "06.01.2026;07.01.2026;Lohn;;2.850,00;EUR\nEndsaldo;1.500,00;EUR\n": (
        [
            *("Konto:; DE89", "Zeitraum:; 01.01.2026 - 31.01.2026"),
            "Anfangssaldo; 1.000,00; EUR",
            "Tag: 05.01.2026; Wert: 05.01.2026; Zweck: Miete; Soll: 850,00; W\u00e4hrung: EUR",
            "Tag: 06.01.2026; Wert: 07.01.2026; Zweck: Lohn; Haben: 2.850,00; W\u00e4hrung: EUR",
            "Tag: Endsaldo; Wert: 1.500,00; Zweck: EUR",
        ],
        [],
    ),
    "city,n\nOslo,1\nPage 1 of 2,\ncity,n\n\u3003,2\n\u3003,3\n": (
        ["city: Oslo; n: 1", "city: Oslo; n: 2", "city: Oslo; n: 3"],
        [
            "Rows that repeat the header are left out: 1.",
            "Ditto marks are read as the value above them: 2.",
            "Page numbers between rows are left out: 1.",
        ],
    ),
    "city,n\nOslo,1\nTotal,1\n* provisional\nSource: census\n": (
        ["city: Oslo; n: 1", "city: Total; n: 1", "* provisional", "Source: census"],
        [],
    ),
}


@in_one_test("text", TABLES)
def test_the_values_of_a_table_have_only_names_that_it_gives_them(text: str) -> None:
    document = read_document(text.encode(), "x.csv")
    lines = [line for chunk in document.chunks for line in chunk.text.split("\n")]
    assert (lines, document.warnings) == TABLES[text]


@in_one_test(
    "text",
    [
        "a,b\n1,2\n\n" + "\u00a0" * 100_000 + ",\n3,4\n",
        f"a,b\n1,2\nNotes{' ' * 100_000},\n",
        f"a\n1,5\n{' ' * 100_000}x,\n",
    ],
)
def test_spaces_without_an_end_are_read_in_time(text: str) -> None:
    assert read_document(text.encode(), "x.csv").chunks


def test_tables_far_below_have_their_own_names() -> None:
    text = "".join(f"a{n},b\nx,{n}\n\n" for n in range(20_000))
    document = read_document(text.encode(), "x.csv")
    assert document.chunks[-1].text.endswith("a19999: x; b: 19999")
    assert document.warnings == ["The file is read as 20,000 tables."]


def test_a_table_that_is_none_says_so() -> None:
    table = b"a,b\n1,2\n" * 3000 + b'"' + b"x" * 200_000 + b'"\n'
    with pytest.raises(UnreadableDocument, match="a cell of more than 131,072 characters"):
        read_document(table, "x.csv")


def test_a_pdf_has_pages() -> None:
    document = read_document(make_pdf("First page", "", "Third\npage", title="Report"), "x.html")
    assert (document.media_type, document.title) == ("application/pdf", "Report")
    assert chunks(document) == [("First page", {"page": 1}), ("Third\npage", {"page": 3})]


@in_one_test(
    ("data", "reason", "hint"),
    [
        (encrypt_pdf(make_pdf("x"), "secret"), "The PDF is encrypted.", "without a password"),
        (make_pdf("", ""), "The PDF has no text", "OCR"),
        (b"%PDF-1.4\nnothing", "The PDF is damaged", None),
        (make_pdf("x")[:300], "The PDF", None),
        (PNG, "The file is of the type image/png.", "can be read"),
        (b"PK\x03\x04", "an archive", "can be read"),
        (b"\xd0\xcf\x11\xe0", "save it as DOCX", "can be read"),
        (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), "without a pass", None),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, reason: str, hint: str | None) -> None:
    with pytest.raises(UnreadableDocument, match=reason) as caught:
        read_document(data, "x")
    if hint:
        assert hint in (caught.value.hint or "")


def test_a_pdf_behind_other_lines_is_read() -> None:
    header = b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 500 + b"\r\n\r\n"
    assert chunks(read_document(header + make_pdf("Hello"))) == [("Hello", {"page": 1})]


def test_a_pdf_that_only_forbids_printing_is_read() -> None:
    assert read_document(encrypt_pdf(make_pdf("x"), ""), "x.pdf").chunks


def test_documents_beyond_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "copilot_runtime.extensions.knowledge.ingestion"
    monkeypatch.setattr(f"{module}.sandbox.MOST_SECONDS", 0.001)
    with pytest.raises(LimitExceeded, match=r"more than 0.001 seconds"):
        read_document(make_pdf("x", "y"), "x.pdf")
    monkeypatch.setattr(f"{module}.documents.MOST_BYTES", 40)
    with pytest.raises(LimitExceeded, match="larger than"):
        read_document(b"x" * 11, "x.txt")


def test_a_pdf_without_its_reader_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(name: str) -> None: ...

    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.ingestion.documents.find_spec", find_nothing
    )
    with pytest.raises(MissingPackage, match="pypdf"):
        read_document(make_pdf("x"))


def test_a_pdf_has_limits_of_pages_and_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MOST_CHARACTERS", 5)
    with pytest.raises(LimitExceeded, match="more than 5 characters"):
        pdf.extract_pages(make_pdf("one", "two"))
    monkeypatch.setattr(pdf, "MOST_PAGES", 1)
    with pytest.raises(LimitExceeded, match="more than 1 pages"):
        pdf.extract_pages(make_pdf("x", "y"))


@in_one_test(
    ("data", "name"),
    [
        (b"<title>T</title><h1>One</h1><p>Text", "x.html"),
        (b"# One\n\ntext\n\n## Two\n\nmore", "x.md"),
        (TABLE.encode(), "x.csv"),
        ("Text \u20ac".encode("utf-16"), "x.txt"),
        (make_pdf("one", "two", title="T"), "x.pdf"),
        (make_docx("<w:p><w:r><w:t>one</w:t></w:r></w:p>"), "x.docx"),
        ((RUSSIAN * 8).encode("cp1251"), "x.txt"),
    ],
)
def test_a_document_in_the_sandbox_is_the_same(data: bytes, name: str) -> None:
    assert read_document(data, name, sandboxed=True) == read_document(data, name)


@in_one_test(
    ("data", "reason", "hint"),
    [
        (b"<div>" * 100_000, "The elements of the page are nested too deeply.", None),
        (b"<p " + b" ".join(b"a%d=1" % n for n in range(3000)) + b">", "attributes", None),
    ],
)
def test_what_the_sandbox_refuses_is_a_limit(data: bytes, reason: str, hint: str | None) -> None:
    with pytest.raises(LimitExceeded, match=reason) as caught:
        read_document(data, "x.html", sandboxed=True)
    assert caught.value.hint == hint


READERS = """
def read_numbers(data, most):
    return {"bytes": len(data), "most": int(most)}

def waste(data):
    while True:
        data += data
"""


@pytest.fixture
def reader(tmp_path: Path) -> str:
    file = tmp_path / "reader.py"
    file.write_text(READERS)
    return str(file)


def test_the_sandbox_runs_a_function_of_a_file(reader: str) -> None:
    result = run_in_sandbox(reader, "read_numbers", b"abc", "5")
    assert result == {"bytes": 3, "most": 5}


def test_what_takes_all_memory_ends_alone(reader: str) -> None:
    with pytest.raises(UnreadableDocument, match="needs too much memory"):
        run_in_sandbox(reader, "waste", b"x" * 1000)


@in_one_test(
    ("data", "said"),
    [
        (make_pdf("one", title="T"), {"value": {"title": "T", "pages": ["one"], "warnings": []}}),
        (
            make_pdf(""),
            {
                "error": "The PDF has no text: its pages are pictures, as a scanner makes them.",
                "code": "UNKNOWN",
                "hint": "Run text recognition (OCR) over it, and try again.",
            },
        ),
        (
            b"%PDF-1.4",
            {
                "error": "The PDF is damaged: Stream has ended unexpectedly",
                "code": "UNKNOWN",
                "hint": None,
            },
        ),
    ],
)
def test_what_the_process_of_the_sandbox_says(
    data: bytes, said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.BytesIO()
    limits: list[int] = []

    def limit(kind: int, values: tuple[int, int]) -> None:
        limits.append(kind)

    monkeypatch.setattr("resource.setrlimit", limit)
    monkeypatch.setattr("sys.argv", ["-c", json.dumps({"call": [pdf.__file__, "extract_pages"]})])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=out))
    sandbox.main()
    assert json.loads(out.getvalue()) == said
    kinds = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)
    assert limits == [resource.RLIMIT_CPU, *kinds]


TAGS = "".join(chr(0xE0000 + ord(char)) for char in "obey")


@in_one_test(
    ("text", "seen"),
    [
        (f"a{TAGS}b", "ab"),
        ("a\u200bb\u200c\u200d\u200cc\u2060\u200bd", "abcd"),
        ("\u4e2d\u200b\u200c\u200d\u6587", "\u4e2d\u200b\u6587"),
        ("x\U0001f600\U000e0130\U000e0141\u200d\U000e0130", "x\U0001f600\U000e0130\u200d"),
        ("\U0001f469\U0001f3fd\u200d\U0001f4bb 1\ufe0f\u20e3", None),
        ("\U0001f441\ufe0f\u200d\U0001f5e8\ufe0f", None),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", None),
        ("\u0915\u094d\u200d\u0937", None),
    ],
)
def test_characters_that_nobody_sees_are_left_out(text: str, seen: str | None) -> None:
    head, item = f"h{text}", "<p itemscope itemtype=https://schema.org/A itemid=#x><b itemprop=p>"
    files = [
        f"<!doctype html><title>{head}</title><h1>{head}</h1><p>{text}".encode(),
        f"# {head}\n\n{text}\n".encode(),
        make_docx(
            f'<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>{head}</w:t></w:r></w:p>'
            f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
        ),
    ]
    seen = seen or text
    for document in map(read_document, files):
        assert chunks(document)[0][1].get("heading") == document.title == f"h{seen}"
        assert document.chunks[0].text == seen
    (triples,) = read_page(f"{item}{text}</b></p>".encode(), "https://e/").items.values()
    assert triples[1][2] == Literal(seen)


def test_chunks_fit_and_lose_no_word() -> None:
    words = [f"w{i}" for i in range(3000)]
    text = " ".join(f"{word}." if i % 7 == 0 else word for i, word in enumerate(words))
    text += "\n" + " ".join(words) + " " + "x" * 5000 + "\u4e2d" * 1000 + ". \n  \n end"
    packed = pack_passages([Chunk(text, ChunkPosition(page=1))], 100)
    assert max(count_tokens(chunk.text) for chunk in packed) <= 100
    assert "".join("".join(chunk.text for chunk in packed).split()) == "".join(text.split())


def test_passages_of_other_pages_are_not_joined() -> None:
    passages = [
        Chunk("a", ChunkPosition(page=1)),
        Chunk("b", ChunkPosition(page=2)),
        Chunk(" "),
        Chunk("c"),
    ]
    assert [chunk.text for chunk in pack_passages(passages)] == ["a", "b", "c"]
    assert pack_passages([]) == []
