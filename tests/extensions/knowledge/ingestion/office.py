"""Small documents of office programs, written by hand."""

import io
import zipfile
from collections.abc import Mapping

_OFFICE = "http://schemas.openxmlformats.org"
_WORD = f'xmlns:w="{_OFFICE}/wordprocessingml/2006/main"'
_SHEET = f'xmlns="{_OFFICE}/spreadsheetml/2006/main" xmlns:r="{_OFFICE}/relationships"'
_SLIDE = (
    f'xmlns:p="{_OFFICE}/presentationml/2006/main" xmlns:a="{_OFFICE}/drawingml/2006/main" '
    f'xmlns:r="{_OFFICE}/relationships"'
)


def make_docx(body: str, *, doctype: str = "", **parts: str) -> bytes:
    """Return a document with the XML of its body, and of parts such as `styles`."""
    document = f"{doctype}<w:document {_WORD}><w:body>{body}</w:body></w:document>"
    files = {"word/document.xml": document}
    for name, content in parts.items():
        files[f"word/{name}.xml"] = f"<w:{name} {_WORD}>{content}</w:{name}>"
    return _pack("word/document.xml", files, {name: f"{name}.xml" for name in parts})


def make_xlsx(sheets: Mapping[str, str], *, texts: str = "", styles: str = "") -> bytes:
    """Return a workbook with the XML of each sheet by its name; one with a `-` is hidden."""
    files = {
        "xl/sharedStrings.xml": f"<sst {_SHEET}>{texts}</sst>",
        "xl/styles.xml": f"<styleSheet {_SHEET}>{styles}</styleSheet>",
    }
    links = {"sharedStrings": "sharedStrings.xml", "styles": "styles.xml"}
    entries = ""
    for number, (name, content) in enumerate(sheets.items(), 1):
        files[f"xl/sheet{number}.xml"] = f"<worksheet {_SHEET}>{content}</worksheet>"
        links[f"worksheet {number}"] = f"sheet{number}.xml"
        state = "hidden" if name.startswith("-") else "visible"
        entries += f'<sheet name="{name}" state="{state}" r:id="worksheet {number}"/>'
    files["xl/workbook.xml"] = f"<workbook {_SHEET}><sheets>{entries}</sheets></workbook>"
    return _pack("xl/workbook.xml", files, links)


def make_pptx(*slides: str, notes: str = "") -> bytes:
    """Return a presentation with the XML of each slide, and the notes of the first one."""
    files = {"ppt/notes.xml": f"<p:notes {_SLIDE}>{notes}</p:notes>"}
    links: dict[str, str] = {}
    entries = ""
    for number, content in enumerate(slides, 1):
        files[f"ppt/slide{number}.xml"] = f"<p:sld {_SLIDE}>{content}</p:sld>"
        links[f"slide {number}"] = f"slide{number}.xml"
        entries += f'<p:sldId id="{255 + number}" r:id="slide {number}"/>'
    size = '<p:sldSz cx="9144000" cy="6858000"/>'
    files["ppt/presentation.xml"] = f"<p:presentation {_SLIDE}>{entries}{size}</p:presentation>"
    files["ppt/_rels/slide1.xml.rels"] = _relate({"notesSlide": "notes.xml"})
    return _pack("ppt/presentation.xml", files, links)


def add_part(data: bytes, owner: str, kind: str, content: str) -> bytes:
    """Return a document with a further part, to which its owner refers by the kind."""
    folder, _, name = owner.rpartition("/")
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        files = {it.filename: source.read(it).decode() for it in source.infolist()}
        relations = files.get(f"{folder}/_rels/{name}.rels", _relate({}))
        more = _relate({kind: f"{kind}.xml"}).removeprefix("<Relationships>")
        files[f"{folder}/_rels/{name}.rels"] = relations.replace("</Relationships>", more)
        files[f"{folder}/{kind}.xml"] = content
        for path, text in files.items():
            target.writestr(path, text)
    return out.getvalue()


def _pack(main: str, files: Mapping[str, str], links: Mapping[str, str]) -> bytes:
    folder, _, name = main.partition("/")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("_rels/.rels", _relate({"officeDocument": main}))
        archive.writestr(f"{folder}/_rels/{name}.rels", _relate(links))
        for path, content in files.items():
            archive.writestr(path, content)
    return out.getvalue()


def _relate(links: Mapping[str, str]) -> str:
    """Return the relations to other files, by identifiers that begin with their kind."""
    entries = (
        f'<Relationship Id="{id}" Type="{_OFFICE}/relationships/{id.split()[0]}" '
        f'Target="{target}"/>'
        for id, target in links.items()
    )
    return f"<Relationships>{''.join(entries)}</Relationships>"
