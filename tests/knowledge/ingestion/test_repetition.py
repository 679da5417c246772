"""A file that repeats itself holds nobody up: each is read within a limit of processor time."""

import subprocess
import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent("""
    import resource, sys, time
    from copilot_runtime.knowledge.ingestion import UnreadableDocument, read_document
    from copilot_runtime.knowledge.rdf import read_page

    def read(data):
        if sys.argv[1] == "page":
            return read_page(data, "https://ex.org/")
        try:
            return read_document(data, sys.argv[1])
        except UnreadableDocument:
            return None

    before, token, after = (text.encode() for text in sys.argv[2:])
    size = (60_000 if sys.argv[1] == "page" else 20_000) // len(token)
    read(b"warm")
    most = int(time.process_time()) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (most, most))
    for times in (size, 1000 // len(token), 200 // len(token)):
        read(before + token * times + after)
""")


def read_repetition(name: str, before: str, token: str, after: str) -> None:
    """Read 20 kB (pages 60), 1 kB and 200 bytes in a process that ends if they take seconds."""
    command = [sys.executable, "-c", SCRIPT, name, before, token, after]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)


@pytest.mark.parametrize("token", ["<!---->", "<!-- -->\n", "<!--", "-->", "-", "<?xml", "<p"])
def test_a_page_of_one_repeated_token_is_read(token: str) -> None:
    read_repetition("x", "<!--" if token == "-" else "", token, "x")


@pytest.mark.parametrize(
    ("before", "token", "after"),
    [
        ("# x", " ", "y"),
        ("# x", " #", "y"),
        ("# x", "#", "y"),
        ("", "# ", "x"),
        ("", "\n", "x"),
        ("", " \n", "x"),
        ("", " ", "x"),
        ("- a", "\n", "x"),
        ("- a", " ", "\nx"),
        ("", "- ", "\nx"),
        ("", "- a\n\n", "x"),
        ("", "](", " "),
        ("[a](", "(", " "),
        ("", "[", "x"),
        ("", "=", "x"),
        ("", "`", "x"),
        ("", "``` ", "x"),
        ("", "-", "x"),
        ("", "---\n", "x"),
    ],
)
@pytest.mark.parametrize("name", ["x", "x.md"])
def test_markdown_of_one_repeated_token_is_read(
    name: str, before: str, token: str, after: str
) -> None:
    read_repetition(name, before, token, after)


@pytest.mark.parametrize("token", [",", '"', '",', "a,", ",\n", "\t", ";|"])
@pytest.mark.parametrize("name", ["x", "x.csv"])
def test_a_table_of_one_repeated_token_is_read(name: str, token: str) -> None:
    read_repetition(name, "", token, "x")


@pytest.mark.parametrize("token", ["a", "a:", "a: ", ": ", ":", "a: b ", "a.-"])
def test_a_page_whose_prefixes_repeat_themselves_is_read(token: str) -> None:
    after = '"><p typeof="Person" vocab="https://schema.org/">x'
    read_repetition("page", '<html><body prefix="', token, after)
