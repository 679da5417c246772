"""The XML of JUnit, as CI systems read it."""

from xml.etree import ElementTree


def encode_suites(suites: ElementTree.Element) -> str:
    """Return `testsuites` as a document."""
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def clean_text(text: str) -> str:
    """Return a text without the characters that no XML may have."""
    return "".join(it for it in text if it in "\n\t" or (it >= " " and it not in "\ufffe\uffff"))
