"""PDF files: lines of paragraphs, notes, forms and pages that are pictures."""

import io
import sys
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NumberObject,
    PdfObject,
    StreamObject,
    TextStringObject,
)

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.knowledge.ingestion import pdf, read_document
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.in_one_test import in_one_test


def make(value: str | int | list[str]) -> PdfObject:
    match value:
        case int():
            return NumberObject(value)
        case list():
            return ArrayObject(map(TextStringObject, value))
        case _:
            return NameObject(value) if value.startswith("/") else TextStringObject(value)


def annotate(data: bytes, *annotations: dict[str, Any]) -> bytes:
    """Return a PDF with annotations on its first page."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.pages[0][NameObject("/Annots")] = ArrayObject(
        DictionaryObject({NameObject(f"/{key}"): make(value) for key, value in fields.items()})
        for fields in annotations
    )
    return write(writer)


def set_states(data: bytes) -> bytes:
    """Return a PDF with ways of mixing colours for its second page."""
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    states = {
        "Clear": ("ca", FloatObject(0)),
        "Half": ("ca", FloatObject(0.5)),
        "Marker": ("BM", NameObject("/Multiply")),
    }
    resources: Any = writer.pages[1]["/Resources"]
    resources[NameObject("/ExtGState")] = DictionaryObject(
        {
            NameObject(f"/{name}"): DictionaryObject({NameObject(f"/{key}"): value})
            for name, (key, value) in states.items()
        }
    )
    return write(writer)


def write(writer: PdfWriter) -> bytes:
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


FULL = "This line of the report of the harbour is as wide as its page, and goes"


@in_one_test(
    ("page", "text"),
    [
        (f"{FULL}\non here.", f"{FULL} on here."),
        (f"{FULL} sta-\ntions grow", f"{FULL} stations grow"),
        ("A well-\nknown and well-known town", "A well-known and well-known town"),
        ("Haupt-\nund Nebenstrecke", "Haupt- und Nebenstrecke"),
        (f"Heading\n{FULL}", f"Heading\n{FULL}"),
        (f"{FULL}\n- an item of a list", f"{FULL}\n- an item of a list"),
        (f"{FULL}\n2. an item", f"{FULL}\n2. an item"),
        (f"{FULL} 5\n{FULL} 6", f"{FULL} 5\n{FULL} 6"),
        (f"{FULL}   a   b\n{FULL}", f"{FULL}   a   b\n{FULL}"),
    ],
)
def test_the_lines_of_a_paragraph_are_joined(page: str, text: str) -> None:
    assert [chunk.text for chunk in read_document(make_pdf(page)).chunks] == [text]


@in_one_test(
    ("annotation", "text"),
    [
        ({"Subtype": "/Text", "Contents": "Check this", "T": "Ann"}, "Note by Ann: Check this"),
        ({"Subtype": "/FreeText", "Contents": "typed"}, "Note: typed"),
        ({"Subtype": "/Stamp", "Contents": "Paid", "Name": "/Approved"}, "Note: Paid"),
        ({"Subtype": "/Stamp", "Name": "/SBNotApproved"}, "Note: Not Approved"),
        ({"Subtype": "/Stamp", "Name": "/#1f"}, ""),
        ({"Subtype": "/Text", "Contents": "hidden", "F": 2}, ""),
        ({"Subtype": "/Popup", "Contents": "twice"}, ""),
        ({"Subtype": "/Widget", "FT": "/Tx", "T": "n", "TU": "Name", "V": "Ann"}, "Name: Ann"),
        ({"Subtype": "/Widget", "FT": "/Ch", "T": "city", "V": ["a", "b"]}, "city: a, b"),
        ({"Subtype": "/Widget", "FT": "/Btn", "T": "ok", "V": "/Yes", "AS": "/Yes"}, "ok: Yes"),
        ({"Subtype": "/Widget", "FT": "/Btn", "T": "no", "V": "/Yes", "AS": "/Off"}, ""),
        ({"Subtype": "/Widget", "FT": "/Tx", "T": "pin", "V": "123", "Ff": 1 << 13}, ""),
    ],
)
def test_notes_and_forms_are_read_with_their_page(annotation: dict[str, Any], text: str) -> None:
    document = read_document(annotate(make_pdf("x", "y"), annotation))
    assert [chunk.text for chunk in document.chunks] == [f"x\n{text}".strip(), "y"]


@in_one_test(
    ("operators", "reason"),
    [
        ("1 g", "White text"),
        ("1 1 1 rg", "White text"),
        ("/Cs1 cs .99 1 1 sc", "White text"),
        ("0 0 0 0 k", "White text"),
        ("q 1 g 0 0 9 9 re f Q 1 g", "White text"),
        ("3 Tr", "Text that is not painted"),
        ("/F1 0.5 Tf", "Text smaller than 1 pt"),
        (".01 0 0 .01 100 100 Tm", "Text smaller than 1 pt"),
        ("1 0 0 1 700 100 Tm", "Text outside of the page"),
        ("1 0 0 1 -100 100 Tm", "Text outside of the page"),
        ("0 1 -1 0 100 -100 Tm", "Text outside of the page"),
        ("ET 300 0 9 9 re W n BT", "Text that is cut away"),
        ("/Clear gs", "Text that is not painted"),
        ("ET 70 700 200 30 re f BT", "Text under a painted area"),
        ("ET 1 g 70 700 200 30 re f* 0 g BT", "Text under a painted area"),
        ("ET 70 500 200 30 re f BT", ""),
        ("ET 70 700 200 30 re S BT", ""),
        ("ET /Half gs 70 700 200 30 re f BT", ""),
        ("ET /Marker gs 70 700 200 30 re f BT", ""),
        ("ET q 0 0 9 9 re W n 70 700 200 30 re f Q BT", ""),
        ("ET 60 600 400 150 re 65 605 390 140 re f* BT", ""),
        ("q 1 g Q", ""),
        (".5 g 0 0 600 780 re f 1 g", "Text under a painted area"),
        ("0 0 0 rg 70 650 400 100 re f 1 1 1 rg", "Text under a painted area"),
        ("/Spot cs 1 scn", ""),
        ("1 g 1 Tr", ""),
        ("1 Tr 3 Tr BI /W 1 /H 1 /BPC 8 /CS /G ID x EI", ""),
        ("1 0 0 1 -5 100 Tm", ""),
        ("1 g /F1 Tf 1 x Tr k m re Q Q 0 g", ""),
    ],
)
def test_a_text_that_nobody_sees_is_named(operators: str, reason: str) -> None:
    document = read_document(set_states(make_pdf("x", f"x) Tj {operators} (evil")))
    assert [chunk.text.replace("\n", "") for chunk in document.chunks] == ["x", "xevil"]
    found = f"{reason} on page 2 is read, though no reader sees it."
    assert document.warnings == ([found] if reason else [])


def test_a_text_of_a_form_is_looked_at() -> None:
    form = StreamObject()
    form.set_data(b"BT 1 g /F1 12 Tf 9 9 Td (evil) Tj ET")
    form.update({NameObject("/Type"): make("/XObject"), NameObject("/Subtype"): make("/Form")})
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf("x) Tj /Fm Do (y"))))
    resources: Any = writer.pages[0]["/Resources"]
    form[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): resources["/Font"]})
    resources[NameObject("/XObject")] = DictionaryObject(
        {NameObject("/Fm"): writer._add_object(form)}  # pyright: ignore[reportPrivateUsage]
    )
    found = "White text on page 1 is read, though no reader sees it."
    assert read_document(write(writer)).warnings == [found]


def test_a_note_that_is_damaged_is_named() -> None:
    document = read_document(annotate(make_pdf("x"), {"Subtype": "/Text", "F": "/odd"}))
    assert document.warnings == ["Page 1: its notes and fields cannot be read."]


@in_one_test(
    ("state", "warnings"),
    [
        ({"OFF": [0]}, ["Layers {}: 1, such as 'A'."]),
        ({"BaseState": "/OFF", "ON": [0]}, ["Layers {}: 1, such as 'B'."]),
        ({"ON": [0]}, []),
        ({"OFF": 7}, []),
    ],
)
def test_layers_that_are_not_shown_are_said(state: dict[str, Any], warnings: list[str]) -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf("x"))))
    layers = ArrayObject(DictionaryObject({NameObject("/Name"): make(name)}) for name in "AB")
    default = {
        NameObject(f"/{key}"): ArrayObject(layers[at] for at in it)
        if type(it) is list
        else make(it)
        for key, it in state.items()
    }
    writer.root_object[NameObject("/OCProperties")] = DictionaryObject(
        {NameObject("/OCGs"): layers, NameObject("/D"): DictionaryObject(default)}
    )
    what = "that the file does not show may have texts, which are read"
    assert read_document(write(writer)).warnings == [it.format(what) for it in warnings]


def test_pages_that_are_pictures_are_named() -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf("x", "", "", "y", "", ""))))
    for number in (1, 2, 4):  # the last page is blank
        stream = StreamObject()
        stream.set_data(b"q 600 0 0 780 0 0 cm /Im1 Do Q")
        writer.pages[number][NameObject("/Contents")] = stream
    writer.add_attachment("a.txt", b"a")
    scans, attached = read_document(write(writer)).warnings
    assert scans.startswith("Pages 2 to 3, 5 have no text: they are pictures.")
    assert attached == "The files attached to it are not read."


def test_pages_whose_glyphs_have_no_characters_are_named() -> None:
    document = read_document(make_pdf("Price:\n\x01\x02 \x03", "y"))
    assert [chunk.text for chunk in document.chunks] == ["Price:\n\ufffd", "y"]
    assert document.warnings[0].startswith("Text on page 1 has no readable characters")
    with pytest.raises(CopilotError, match="its fonts do not say which characters"):
        read_document(make_pdf("\x01\x02\x03\x04"))


def test_pages_whose_font_does_not_name_its_letters_are_named() -> None:
    data = make_pdf("gr\u00f6\u00dfer", "x").replace(b"/Type1", b"/TrueType")
    names = [read_document(it).warnings for it in (data, data.replace(b"\xf6\xdf", b"oe"))]
    assert [it[0].partition(":")[0] if it else "" for it in names] == [
        "Letters on page 1 may be lost",
        "",
    ]


def test_an_encrypted_file_names_the_package_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf("x"))))
    writer.encrypt("", algorithm="AES-256")
    data = write(writer)
    for name in [name for name in sys.modules if name.startswith("pypdf")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("cryptography", "Crypto"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CopilotError, match="the package 'cryptography' is not installed"):
        pdf.extract_pages(data)


@in_one_test(("title", "name"), [("Boilers", "Boilers"), ("untitled", "b.pdf"), ("", "b.pdf")])
def test_a_document_has_the_title_of_a_person_or_the_name_of_its_file(title: str, name: str):
    assert read_document(make_pdf("x", title=title), "b.pdf").title == name
