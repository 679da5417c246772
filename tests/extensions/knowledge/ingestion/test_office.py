"""Documents of office programs are read with all that they show."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from openpyxl.styles import Font, PatternFill

from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.extensions.knowledge.ingestion import (
    Document,
    UnreadableDocument,
    read_document,
)
from copilot_runtime.extensions.knowledge.office import excel
from tests.extensions.knowledge.ingestion.office import (
    add_part,
    make_docx,
    make_pptx,
    make_xlsx,
)
from tests.in_one_test import in_one_test


def read(data: bytes) -> Document:
    return read_document(data, "x")


def texts(document: Document) -> list[str]:
    return [
        line
        for chunk in document.chunks
        for line in (f"[{chunk.place.heading}]", *chunk.text.split("\n"))
    ]


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


WHITE = "<w:color w:val='FFFFFE'/>"
DARK = "<w:shd w:val='clear' w:fill='1F3864'/>"
ANCHOR = (
    "<w:anchor><w:docPr hidden='{}'/><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p>"
    "</w:txbxContent></w:anchor></w:r>"
)
DROPDOWN = "<w:fldChar><w:ffData><w:ddList>"
ENTRIES = (
    "<w:listEntry w:val='Rome'/><w:listEntry w:val='Oslo'/></w:ddList></w:ffData></w:fldChar></w:r>"
)
STYLES = """<w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style>
  <w:style w:styleId="Mine"><w:basedOn w:val="H2"/></w:style>
  <w:style w:styleId="H2"><w:name w:val="Heading 2"/><w:basedOn w:val="Mine"/></w:style>"""
NUMBERING = """<w:abstractNum w:abstractNumId="7">
    <w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
    <w:lvl w:ilvl="1"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1%2)"/></w:lvl>
  </w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>"""


def item(text: str, depth: int) -> str:
    numbers = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="1"/></w:numPr>'
    return paragraph(text, numbers)


def test_a_word_document_has_headings_lists_and_tables() -> None:
    merged, wide = '<w:vMerge w:val="restart"/>', '<w:gridSpan w:val="2"/>'
    table = (
        f"<w:tbl><w:tr>{cell('Bergen', merged)}{cell('2024')}{cell('5')}</w:tr>"
        f"<w:tr>{cell('', '<w:vMerge/>')}{cell('none', wide)}</w:tr></w:tbl>"
    )
    document = read(
        make_docx(
            paragraph("Harbour", '<w:pStyle w:val="H1"/>')
            + item("moor", 0)
            + item("rope", 1)
            + item("anchor", 1)
            + item("pay", 0)
            + paragraph("Prices", '<w:pStyle w:val="Mine"/>')
            + table,
            styles=STYLES,
            numbering=NUMBERING,
        )
    )
    assert document.title == "Harbour"
    assert texts(document) == [
        "[Harbour]",
        *("1. moor", "1a) rope", "1b) anchor", "2. pay"),
        "[Harbour \u203a Prices]",
        *("Bergen | 2024 | 5", "Bergen | none | none"),
    ]


@in_one_test(
    ("content", "text"),
    [
        ("<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r>", "a\tb\nc"),
        ("<w:ins><w:r><w:t>new</w:t></w:r></w:ins>", "new"),
        ("<w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:r><w:t>x</w:t></w:r>", "x"),
        ("<w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r><w:r><w:t>x</w:t></w:r>", "x"),
        ("<w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>yes</w:t></w:r>", "yes"),
        (
            "<w:r><w:rPr><w:rStyle w:val='Secret'/></w:rPr><w:t>no</w:t></w:r>"
            "<w:r><w:rPr><w:rStyle w:val='Secret'/><w:vanish w:val='0'/></w:rPr><w:t>x</w:t></w:r>",
            "x",
        ),
        (
            "<w:r><w:sym w:font='Symbol' w:char='F0A3'/><w:t>5 t </w:t>"
            "<w:sym w:font='Wingdings' w:char='F0FE'/>"
            "<w:sym w:font='Webdings' w:char='F041'/></w:r>",
            "\u22645 t \u2611\ufffd",
        ),
        (
            "<w:r><w:fldChar><w:ffData><w:checkBox><w:default w:val='0'/><w:checked/></w:checkBox>"
            "</w:ffData></w:fldChar></w:r><w:r><w:t>yes</w:t></w:r>",
            "\u2611 yes",
        ),
        (
            "<w:r><w:t>2</w:t></w:r><w:r><w:rPr><w:vertAlign w:val='superscript'/></w:rPr>"
            "<w:t>10</w:t></w:r>",
            "2^10",
        ),
        ("<w:r><w:rPr><w:strike/></w:rPr><w:t>void</w:t></w:r>", "~~void~~"),
        ("<w:sdt><w:sdtContent><w:r><w:t>field</w:t></w:r></w:sdtContent></w:sdt>", "field"),
        ("<w:r><w:drawing><w:docPr descr='A map'/></w:drawing></w:r>", "A map"),
        (
            "<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent><w:r><w:t>Click here"
            "</w:t></w:r></w:sdtContent></w:sdt><w:r><w:t>x</w:t></w:r>",
            "x",
        ),
        (
            "<w:sdt><w:sdtPr><w:showingPlcHdr w:val='0'/></w:sdtPr><w:sdtContent><w:r><w:t>Oslo"
            "</w:t></w:r></w:sdtContent></w:sdt>",
            "Oslo",
        ),
        (f"<w:r>{ANCHOR.format('1')}<w:r><w:t>x</w:t></w:r>", "x"),
        (f"<w:r>{ANCHOR.format('0')}<w:r><w:t>x</w:t></w:r>", "x\nbox"),
        (f"<w:r>{DROPDOWN}<w:result w:val='1'/>{ENTRIES}", "Oslo"),
        (f"<w:r>{DROPDOWN}<w:default w:val='1'/>{ENTRIES}", "Oslo"),
        (f"<w:r>{DROPDOWN}{ENTRIES}", "Rome"),
        (f"<w:r>{DROPDOWN}<w:result w:val='7'/>{ENTRIES}<w:r><w:t>x</w:t></w:r>", "x"),
        ("<w:r><w:rPr><w:sz w:val='2'/></w:rPr><w:t>no</w:t></w:r><w:r><w:t>x</w:t></w:r>", "x"),
        ("<w:r><w:pict><w:shape><w:textpath string='Draft'/></w:shape></w:pict></w:r>", "Draft"),
        (f"<w:r><w:rPr>{WHITE}</w:rPr><w:t>no</w:t></w:r><w:r><w:t>x</w:t></w:r>", "x"),
        (f"<w:r><w:rPr>{WHITE}{DARK}</w:rPr><w:t>yes</w:t></w:r>", "yes"),
        (
            "<w:r><w:rPr><w:rStyle w:val='Ghost'/></w:rPr><w:t>no</w:t></w:r>"
            "<w:r><w:t>x</w:t></w:r>",
            "x",
        ),
        (f"<w:pPr>{DARK}</w:pPr><w:r><w:rPr>{WHITE}</w:rPr><w:t>yes</w:t></w:r>", "yes"),
        (
            f"<w:r><w:anchor behindDoc='1'/></w:r><w:r><w:rPr>{WHITE}</w:rPr><w:t>yes</w:t></w:r>",
            "yes",
        ),
        (
            "<w:oMath><w:f><w:num><w:t>a+b</w:t></w:num><w:den><w:sSup><w:e><w:t>c</w:t></w:e>"
            "<w:sup><w:t>2</w:t></w:sup></w:sSup></w:den></w:f></w:oMath>",
            "(a+b)/(c^2)",
        ),
        (
            "<w:r><w:t>x</w:t><w:txbxContent><w:p><w:r><w:t>box</w:t><w:txbxContent><w:p><w:r>"
            "<w:t>inner</w:t></w:r></w:p></w:txbxContent></w:r></w:p></w:txbxContent></w:r>",
            "x\nbox\ninner",
        ),
        (
            "<w:r><w:t>x</w:t><w:footnoteReference w:id='1'/><w:commentReference w:id='2'/></w:r>",
            "x\nNote: why\nNote by Ann: check",
        ),
    ],
)
def test_a_paragraph_says_what_it_shows(content: str, text: str) -> None:
    document = make_docx(
        f"<w:p>{content}</w:p>",
        footnotes="<w:footnote w:id='1'><w:p><w:r><w:t>why</w:t></w:r></w:p></w:footnote>",
        comments="<w:comment w:id='2' w:author='Ann'><w:p><w:r><w:t>check</w:t></w:r></w:p>"
        "</w:comment>",
        styles=f"<w:style w:styleId='Ghost'><w:rPr>{WHITE}</w:rPr></w:style>"
        "<w:style w:styleId='Hidden'><w:rPr><w:vanish/></w:rPr></w:style>"
        "<w:style w:styleId='Secret'><w:basedOn w:val='Hidden'/></w:style>",
    )
    assert [chunk.text for chunk in read(document).chunks] == [text]


def test_a_text_over_the_picture_of_a_letterhead_is_read() -> None:
    picture = "<w:p><w:r><w:anchor behindDoc='1'/></w:r></w:p>"
    body = f"<w:p><w:r><w:rPr>{WHITE}</w:rPr><w:t>yes</w:t></w:r></w:p>"
    found = [read(make_docx(body, header=header)).chunks for header in (picture, "")]
    assert [[it.text for it in chunks] for chunks in found] == [["yes"], []]


def test_changes_margins_and_notes_of_a_word_document_are_read_or_counted() -> None:
    run = "<w:r><w:t>{}</w:t></w:r>".format
    gone = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>no</w:t></w:r>"
    note = "<w:comment w:id='{}'><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:comment>".format
    document = read(
        make_docx(
            f"<w:p>{run('text ')}<w:ins>{run('new')}</w:ins>{gone}{hidden}"
            "<w:r><w:commentReference w:id='1'/></w:r></w:p>"
            f"<w:tbl><w:tr><w:trPr><w:del/></w:trPr><w:tc>{paragraph('row')}</w:tc></w:tr>"
            f"<w:tr><w:trPr><w:hidden/></w:trPr><w:tc>{paragraph('no')}</w:tc></w:tr></w:tbl>",
            header=paragraph("Confidential"),
            footer=paragraph("Page 1 of 9"),
            comments=note(1, "check") + note(2, "lost"),
        )
    )
    assert texts(document) == ["[]", "Header: Confidential", "text new", "Note: check"]
    assert document.warnings == [
        "Tracked changes are read as accepted: inserted texts (1) are read, deleted ones (2) are "
        "left out.",
        "Hidden texts are left out: 2.",
        "Notes to which no text refers are left out: 1.",
    ]


@in_one_test(
    ("section", "settings", "header"),
    [
        ("<w:headerReference w:type='default' w:id='header'/>", "", ["Header: Draft"]),
        ("<w:headerReference w:type='first' w:id='header'/>", "", []),
        ("<w:headerReference w:type='first' w:id='header'/><w:titlePg/>", "", ["Header: Draft"]),
        ("<w:headerReference w:type='even' w:id='header'/><w:titlePg/>", "", []),
        ("<w:headerReference w:type='even' w:id='header'/>", "<w:evenAndOddHeaders/>",
         ["Header: Draft"]),
    ],
)  # fmt: skip
def test_a_header_that_is_switched_off_is_left_out(
    section: str, settings: str, header: list[str]
) -> None:
    body = f"{paragraph('x')}<w:sectPr>{section}</w:sectPr>"
    document = read(make_docx(body, header=paragraph("Draft"), settings=settings))
    assert texts(document) == ["[]", *header, "x"]


SHEET = """<cols><col min="3" max="3" hidden="1"/></cols><sheetData>
  <row r="1"><c r="A1" t="inlineStr"><is><t>Usage</t></is></c></row>
  <row r="3"><c r="A3" t="s"><v>0</v></c><c r="B3" t="s"><v>1</v></c>
    <c r="C3" t="s"><v>2</v></c></row>
  <row r="4"><c r="A4" t="s"><v>3</v></c><c r="B4" s="1"><v>45413</v></c>
    <c r="C4" s="2"><v>0.255</v></c></row>
  <row r="5" hidden="1"><c r="B5" s="1"><v>45414.5</v></c>
    <c r="C5"><v>0.30000000000000004</v></c></row>
  <row r="6"><c r="C6"><f>SUM(C4:C5)</f></c></row>
</sheetData><mergeCells><mergeCell ref="A4:A5"/></mergeCells>"""


FACTS = """<sheetData>
  <row><c t="s"><v>0</v></c><c t="inlineStr"><is><t>$5,000</t></is></c></row>
  <row><c t="s"><v>1</v></c><c><v>7</v></c></row>
  <row><c t="s"><v>2</v></c><c><v>1.234567890123457e+16</v></c></row></sheetData>"""


def test_a_workbook_has_the_rows_of_its_sheets_with_their_columns() -> None:
    names = "".join(f"<si><t>{name}</t></si>" for name in ("City", "Date", "Share"))
    document = read(
        make_xlsx(
            {"Stations": SHEET, "-Secret": SHEET, "Facts": FACTS},
            texts=f"{names}<si><r><t>Ber</t></r><r><t>gen</t></r><rPh><t>no</t></rPh></si>",
            styles='<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="10"/></cellXfs>',
        )
    )
    assert texts(document) == [
        "[Stations]",
        "Usage",
        "City: Bergen; Date: 2024-05-01; Share: 25.5%",
        "City: Bergen; Date: 2024-05-02 12:00:00; Share: 0.3",
        "[Facts]",
        *("City | $5,000", "Date | 7", "Share | 12345678901234570"),
    ]
    assert document.chunks[0].place.rows == (1, 5)
    assert document.warnings == [
        "Hidden rows (1) and columns (1) of the sheet 'Stations' are read.",
        "The hidden sheet '-Secret' is not read.",
        "A table of the sheet 'Facts' has no header: its values have no names of columns.",
        "Formulas without a stored value: 1. Open the file in a program that calculates them, "
        "and save it.",
    ]


def test_the_tables_of_a_sheet_have_their_own_names_and_units() -> None:
    rows = (
        ("Prices",),
        ("Fruit", "Price", None, "Price", "Weight"),
        ("plum", 2.5, None, -7, 0.5),
        ("fig", 3, None, 8, 1.5),
        ("* estimated", None, None, 9, 2),
        (),
        ("Shop", "Staff"),
        ("Oslo", 4),
    )
    formats = {"B": '"$"#,##0.00', "D": "[$\u20ac-407]0", "E": '0.0 "kg"'}
    book: Any = openpyxl.Workbook()
    for number, values in enumerate(rows, 1):
        for column, value in enumerate(values, 1):
            cell = book.active.cell(number, column, value)
            cell.number_format = formats.get(cell.column_letter, "General")
    out = io.BytesIO()
    book.save(out)
    document = read(out.getvalue())
    assert texts(document) == [
        "[Sheet]",
        "Prices",
        *("Fruit: plum; Price: $2.5", "Fruit: fig; Price: $3", "* estimated"),
        *("Price: -\u20ac7; Weight: 0.5 kg", "Price: \u20ac8; Weight: 1.5 kg"),
        "Price: \u20ac9; Weight: 2 kg",
        "Shop: Oslo; Staff: $4",
    ]
    assert document.warnings == ["The sheet 'Sheet' is read as 3 tables."]


def test_values_of_a_sheet_that_are_struck_out_or_not_seen_are_marked() -> None:
    looks: Sequence[dict[str, Any]] = (
        {"font": Font(strike=True)},
        {"font": Font(color="FFFFFF")},
        {"font": Font(size=1)},
        {"font": Font(color="112233"), "fill": PatternFill("solid", fgColor="112233")},
        {"font": Font(color="FFFFFF"), "fill": PatternFill("solid", fgColor="112233")},
        {"font": Font(color="112233")},
    )
    book: Any = openpyxl.Workbook()
    for number, look in enumerate(looks, 1):
        cell = book.active.cell(number, 1, number * 1.5)
        for name, value in look.items():
            setattr(cell, name, value)
    out = io.BytesIO()
    book.save(out)
    document = read(out.getvalue())
    assert texts(document) == ["[Sheet]", "~~1.5~~", "3", "4.5", "6", "7.5", "9"]
    assert document.warnings == ["White or tiny values of the sheet 'Sheet' are read: 3."]


def shape(text: str, role: str = "") -> str:
    return (
        f'<p:sp><p:nvPr><p:ph type="{role}"/></p:nvPr><p:txBody>'
        f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
    )


def test_a_presentation_has_slides_with_titles_and_notes() -> None:
    hidden = "<p:sp><p:cNvPr hidden='1'/><a:p><a:r><a:t>no</a:t></a:r></a:p></p:sp>"
    rows = (
        "<p:graphicFrame><a:tbl>"
        "<a:tr><a:tc rowSpan='2'><a:p><a:t>Bergen</a:t></a:p></a:tc>"
        "<a:tc><a:p><a:t>5</a:t></a:p></a:tc></a:tr>"
        "<a:tr><a:tc vMerge='1'/><a:tc><a:p><a:t>6</a:t></a:p></a:tc></a:tr>"
        "</a:tbl></p:graphicFrame>"
    )
    document = read(
        make_pptx(
            shape("First") + shape("Plan", "title") + hidden + shape("7", "sldNum"),
            f"<p:grpSp>{rows}</p:grpSp>",
            notes=shape("Say hello", "body") + shape("1", "sldNum"),
        )
    )
    assert [(chunk.place.encode(), chunk.text) for chunk in document.chunks] == [
        ({"page": 1, "heading": "Plan"}, "First\nNotes: Say hello"),
        ({"page": 2, "heading": "Slide 2"}, "Bergen | 5\nBergen | 6"),
    ]


FAINT = "<a:solidFill><a:srgbClr val='FFFFFF'/></a:solidFill>"
PLACED = "<p:spPr><a:xfrm><a:off x='{}' y='0'/><a:ext cx='5' cy='5'/></a:xfrm>{}</p:spPr>".format


@in_one_test(
    ("properties", "run", "beside", "text", "warned"),
    [
        (PLACED(-9, ""), "", "", "x", True),
        (PLACED(9999999, ""), "", "", "x", True),
        (PLACED(-4, ""), "", "", "x", False),
        ("", "<a:rPr sz='100'/>", "", "x", True),
        ("", "<a:rPr sz='1800'/>", "", "x", False),
        ("", "<a:rPr strike='sngStrike'/>", "", "~~x~~", False),
        ("", "<a:rPr strike='noStrike'/>", "", "x", False),
        ("", f"<a:rPr>{FAINT}</a:rPr>", "", "x", True),
        ("", "<a:rPr><a:solidFill><a:schemeClr val='bg1'/></a:solidFill></a:rPr>", "", "x", True),
        ("", f"<a:rPr>{FAINT}</a:rPr>", "<p:pic><a:blip/></p:pic>", "x", False),
        ("", f"<a:rPr>{FAINT}</a:rPr>", "<p:sp><p:style><a:fillRef idx='1'/></p:style></p:sp>", "x",
         False),
        (PLACED(0, FAINT.replace("FFFFFF", "000000")), f"<a:rPr>{FAINT}</a:rPr>", "", "x", False),
    ],
)  # fmt: skip
def test_a_text_of_a_slide_that_nobody_sees_is_said(
    properties: str, run: str, beside: str, text: str, warned: bool
) -> None:
    paragraph = f"<p:txBody><a:p><a:r>{run}<a:t>x</a:t></a:r></a:p></p:txBody>"
    document = read(make_pptx(f"<p:sp>{properties}{paragraph}</p:sp>{beside}"))
    warning = "Slide 1: texts that are white, tiny or outside of it are read."
    assert [chunk.text for chunk in document.chunks] == [text]
    assert document.warnings == [warning] * warned


CHART = (
    "<c xmlns:a='a'><title><a:p><a:t>Guests </a:t><a:t>by day</a:t></a:p></title><barChart><ser>"
    "<tx><strRef><strCache><pt idx='0'><v>Oslo</v></pt></strCache></strRef></tx>"
    "<cat><numRef><numCache><formatCode>d.m.yyyy</formatCode><pt idx='0'><v>45413</v></pt>"
    "<pt idx='1'><v>45414</v></pt></numCache></numRef></cat>"
    "<val><numRef><numCache><formatCode>General</formatCode><pt idx='0'><v>12</v></pt>"
    "<pt idx='1'><v>9.5</v></pt></numCache></numRef></val></ser></barChart></c>"
)
CHART_LINES = ["Guests by day", "Oslo: 2024-05-01: 12; 2024-05-02: 9.5"]
DIAGRAM = "<d xmlns:a='a'><a:p><a:t>Ask</a:t></a:p><a:p/><a:p><a:t>Answer</a:t></a:p></d>"
CHARTED = "<chart xmlns:r='r' r:id='chart'/>"
DRAWN = "<relIds xmlns:r='r' r:dm='diagramData'/>"


def test_charts_and_diagrams_of_documents_are_read_or_said() -> None:
    frames = "".join(f"<p:graphicFrame>{it}</p:graphicFrame>" for it in (CHARTED, DRAWN))
    slides = make_pptx(shape("Plan", "title") + frames, shape("End", "title") + frames)
    word = make_docx(f"<w:p><w:r><w:t>Before</w:t>{CHARTED}{DRAWN}</w:r></w:p>")
    sheet = f"<d xmlns:a='a'>{CHARTED}<txBody><a:p><a:t>Note</a:t></a:p></txBody></d>"
    book = make_xlsx({"S": "<sheetData><row><c><v>1</v></c></row></sheetData>"})
    for kind, content in (("chart", CHART), ("diagramData", DIAGRAM)):
        slides = add_part(slides, "ppt/slide1.xml", kind, content)
        word = add_part(word, "word/document.xml", kind, content)
    book = add_part(book, "xl/sheet1.xml", "drawing", sheet)
    book = add_part(book, "xl/drawing.xml", "chart", CHART)

    assert texts(read(slides)) == ["[Plan]", *CHART_LINES, "Ask", "Answer", "[]", "End"]
    assert read(slides).warnings == ["Slide 2: its chart or diagram is not read."] * 2
    assert texts(read(word)) == ["[]", "Before", *CHART_LINES, "Ask", "Answer"]
    assert texts(read(book)) == ["[S]", "1", *CHART_LINES, "Note"]


def test_a_chart_in_many_places_is_unpacked_once() -> None:
    word = make_docx(f"<w:p>{CHARTED * 300}</w:p>")
    word = add_part(word, "word/document.xml", "chart", CHART + " " * 1024 * 1024)
    assert texts(read(word))[-2:] == CHART_LINES


def test_an_entity_of_a_document_is_not_loaded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    doctype = f'<!DOCTYPE x [<!ENTITY a SYSTEM "{secret.as_uri()}"><!ENTITY b "own">]>'
    body = "<w:p><w:r><w:t>ok &a;&b;</w:t></w:r></w:p>"
    assert texts(read(make_docx(body, doctype=doctype))) == ["[]", "ok"]


@in_one_test(
    ("body", "error"),
    [
        (" " * 300 * 1024 * 1024, LimitExceeded),
        ("<w:sdt>" * 5000 + "</w:sdt>" * 5000, UnreadableDocument),
        ("<w:p>", UnreadableDocument),
    ],
)
def test_a_document_that_is_an_attack_is_refused(body: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(make_docx(body))


def test_a_document_that_is_cut_off_is_said_to_be_so() -> None:
    whole = make_docx("<w:p><w:r><w:t>ok</w:t></w:r></w:p>")
    with pytest.raises(UnreadableDocument, match="is damaged or cut off"):
        read_document(whole[: len(whole) // 2], "report.docx")


def test_a_text_that_many_cells_share_is_limited() -> None:
    rows = '<row><c t="s"><v>0</v></c></row>' * 1000
    data = make_xlsx(
        {"S": f"<sheetData>{rows}</sheetData>"}, texts=f"<si><t>{'y' * 30_000}</t></si>"
    )
    with pytest.raises(LimitExceeded, match="16,777,216 characters"):
        excel.extract_passages(data)
