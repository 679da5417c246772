"""Items of microdata become statements."""

from copilot_runtime.extensions.knowledge.rdf.html import clean_text
from copilot_runtime.extensions.knowledge.rdf.page import read_page
from tests.extensions.knowledge.rdf.statements import say
from tests.in_one_test import in_one_test

ITEM = '<div itemscope itemtype="https://schema.org/Thing" itemid="https://e/x"{}>{}</div>'


def thing(inside: str, attributes: str = "") -> list[str]:
    """Return what is said of one thing, beside its type."""
    return say(ITEM.format(attributes, inside))["https://e/x"][1:]


@in_one_test(
    ("element", "value"),
    [
        ('<span itemprop="p">a  <b>b</b>\n c</span>', '"a b c"'),
        ('<p itemprop="p">One.<br>Two.</p>', '"One. Two."'),
        ('<ul itemprop="p"><li>a</li><li>b<style>x</style></li></ul>', '"a b"'),
        ('<span itemprop="p" content="c">x</span>', '"c"'),
        ('<meta itemprop="p" content=" &amp; ">', '"&"'),
        ('<a itemprop="p" href="q?a b">x</a>', "<https://ex.org/q?a%20b>"),
        ('<a itemprop="p">x</a>', '"x"'),
        ('<img itemprop="p" src="/i.png">', "<https://ex.org/i.png>"),
        ('<object itemprop="p" data="d"></object>', "<https://ex.org/d>"),
        ('<link itemprop="p" href="http://schema.org/InStock">', "<InStock>"),
        ('<data itemprop="p" value="12">x</data>', '"12"^^<xsd:integer>'),
        ('<data itemprop="p" value="-1.5e3">x</data>', '"-1.5e3"^^<xsd:double>'),
        ('<data itemprop="p" value="007">x</data>', '"007"^^<xsd:integer>'),
        ('<data itemprop="p" value="a12">x</data>', '"a12"'),
        ('<data itemprop="p" value="1.">x</data>', '"1."'),
        ('<data itemprop="p">x</data>', '"x"'),
        ('<meter itemprop="p" value="3">x</meter>', '"3"^^<xsd:integer>'),
        ('<time itemprop="p" datetime="2024-05-01">x</time>', '"2024-05-01"^^<xsd:date>'),
        (
            '<time itemprop="p" datetime="2024-05-01T10:00:00+02:00">x</time>',
            '"2024-05-01T10:00:00+02:00"^^<xsd:dateTime>',
        ),
        ('<time itemprop="p" datetime="10:00:00Z">x</time>', '"10:00:00Z"^^<xsd:time>'),
        ('<time itemprop="p" datetime="2024-05">x</time>', '"2024-05"^^<xsd:gYearMonth>'),
        ('<time itemprop="p" datetime="2024">x</time>', '"2024"^^<xsd:gYear>'),
        ('<time itemprop="p" datetime="PT1H30M">x</time>', '"PT1H30M"^^<xsd:duration>'),
        ('<time itemprop="p" datetime="P">x</time>', '"P"'),
        ('<time itemprop="p" datetime="2024-13-01">x</time>', '"2024-13-01"'),
        ('<time itemprop="p">2024-05-01</time>', '"2024-05-01"'),
    ],
)
def test_a_value_is_what_its_element_means(element: str, value: str) -> None:
    assert thing(element) == [f"<p> {value}"]


@in_one_test("address", ["javascript:alert(1)", "http://[", "x" * 9000, "  VBScript:x"])
def test_an_address_that_is_none_or_runs_code_is_left_out(address: str) -> None:
    assert thing(f'<a itemprop="p" href="{address}">x</a>') == []


def test_a_property_may_have_several_names_and_one_of_another_vocabulary() -> None:
    assert thing('<i itemprop="name title https://v.org/t name">x</i>') == [
        '<name> "x"',
        '<title> "x"',
        '<https://v.org/t> "x"',
    ]


def test_an_item_has_all_of_its_types_and_the_vocabulary_of_the_first() -> None:
    page = """<div itemscope itemid="#me"
        itemtype="https://schema.org/Person https://v.org/ns#Patient nothing">
        <i itemprop="name">n</i></div>"""
    assert say(page) == {
        "https://ex.org/page.html#me": ["a <Person>", "a <https://v.org/ns#Patient>", '<name> "n"']
    }


def test_names_of_an_item_without_a_type_mean_nothing_unless_they_are_whole() -> None:
    page = f"""<div itemscope itemid="https://e/y"><i itemprop="name">n</i></div>
        {ITEM.format("", '<div itemprop="p" itemscope><i itemprop="name">n</i></div>')}"""
    assert [*say(page)] == ["https://e/x"]


def test_an_old_or_other_address_of_schema_org_is_the_one_that_counts() -> None:
    page = '<div itemscope itemtype="http://www.schema.org/Person"><i itemprop="name">Bob</i></div>'
    assert [*say(page).values()] == [["a <Person>", '<name> "Bob"']]


def test_things_inside_a_thing_are_things_of_their_own() -> None:
    page = ITEM.format(
        "",
        """<i itemprop="name">outer</i>
        <div itemprop="author" itemscope itemtype="https://schema.org/Person" itemid="https://e/a">
        <i itemprop="name">inner</i></div>""",
    )
    assert say(page) == {
        "https://e/x": ["a <Thing>", '<name> "outer"', "<author> <https://e/a>"],
        "https://e/a": ["a <Person>", '<name> "inner"'],
    }


def test_properties_may_stand_elsewhere_on_the_page() -> None:
    page = ITEM.format(' itemref="one two none"', "") + (
        '<i id="one" itemprop="name">first</i>'
        '<div id="two" lang="fr"><i itemprop="title">t</i></div>'
    )
    assert say(page)["https://e/x"] == ["a <Thing>", '<name> "first"', '<title> "t"@fr']


def test_elements_that_refer_to_each_other_are_read_once() -> None:
    page = """<div id="a"><div itemscope itemtype="https://schema.org/Thing" itemid="https://e/x"
        itemref="a a"><i itemprop="name">n</i></div></div>"""
    assert say(page) == {"https://e/x": ["a <Thing>", '<name> "n"']}


def test_an_item_that_refers_to_itself_ends_there() -> None:
    page = """<div id="a" itemprop="knows" itemscope itemtype="https://schema.org/Person"
        itemid="https://e/x" itemref="a"></div>"""
    assert say(page) == {"https://e/x": ["a <Person>"]}


def test_a_text_is_in_the_language_of_its_element() -> None:
    inside = """<i itemprop="a">x</i><div lang="de-AT"><i itemprop="b">x</i><i itemprop="c" lang="">
        x</i></div><i itemprop="d" xml:lang="en_US">x</i><i itemprop="e" lang="not a tag!">x</i>
        <data itemprop="f" value="1" lang="en"></data>"""
    assert thing(inside, ' lang="fr"') == [
        '<a> "x"@fr',
        '<b> "x"@de-at',
        '<c> "x"',
        '<d> "x"@en-us',
        '<e> "x"',
        '<f> "1"^^<xsd:integer>',
    ]


def test_references_are_relative_to_the_base_that_the_page_names() -> None:
    page = '<base href="/docs/">' + ITEM.format("", '<a itemprop="p" href="q">x</a>')
    assert say(page)["https://e/x"][1:] == ["<p> <https://ex.org/docs/q>"]


@in_one_test(
    ("text", "clean"),
    [
        ("a <5 b", "a <5 b"),
        ("A & B", "A & B"),
        ("\u201ca\u201d \u2018b\u2019\u00a0 c", "\"a\" 'b' c"),
        (" a\n\tb ", " a b "),
    ],
)
def test_a_text_is_made_plain_and_nothing_in_it_is_encoded(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@in_one_test(
    "page",
    [
        "\ufeff<p itemscope itemtype='https://schema.org/Thing'><i itemprop=name>é".encode(),
        "<p itemscope itemtype='https://schema.org/Thing'><i itemprop=name>é".encode("utf-16"),
        "<p itemscope itemtype='https://schema.org/Thing'><i itemprop=name>é".encode("cp1252"),
        "<meta charset=iso-8859-1><p itemscope itemtype='https://schema.org/Thing'>"
        "<i itemprop=name>é".encode("cp1252"),
        "<meta http-equiv=content-type content='text/html; charset=iso-8859-15'>"
        "<p itemscope itemtype='https://schema.org/Thing'><i itemprop=name>é".encode("latin-1"),
        "<meta charset=no-such><p itemscope itemtype='https://schema.org/Thing'>"
        "<i itemprop=name>é".encode(),
        "<meta charset=utf-16><p itemscope itemtype='https://schema.org/Thing'>"
        "<i itemprop=name>é".encode(),
    ],
)
def test_a_page_is_read_in_its_encoding(page: bytes) -> None:
    [[_, (_, _, name)]] = read_page(page, "https://ex.org/").items.values()
    assert str(name) == '"é"'


@in_one_test("page", [b"", b"  ", b"<!-- nothing -->", b"\x00\x00", b"<<<>>>&#0;&bad;"])
def test_a_page_without_anything_says_nothing(page: bytes) -> None:
    assert read_page(page, "https://ex.org/").items == {}


def test_a_person_with_an_address() -> None:
    page = """<div vocab="http://schema.org/" typeof="Person" resource="#manu">
        <a property="image" href="http://m.example/a.png"><span property="name">Manu</span></a>
        <span property="jobTitle" lang="en">Dev</span>
        <div property="address" typeof="PostalAddress" resource="#home">
            <span property="streetAddress">1 Road</span></div>
        <time property="birthDate" datetime="1990-01-31">then</time>
        <time property="founded">some day</time>
        <meta property="x" content="hidden"></div>"""
    assert say(page) == {
        "https://ex.org/page.html#manu": [
            "a <Person>",
            "<image> <http://m.example/a.png>",
            '<name> "Manu"',
            '<jobTitle> "Dev"@en',
            "<address> <https://ex.org/page.html#home>",
            '<birthDate> "1990-01-31"^^<xsd:date>',
            '<founded> "some day"',
            '<x> "hidden"',
        ],
        "https://ex.org/page.html#home": ["a <PostalAddress>", '<streetAddress> "1 Road"'],
    }


def test_prefixes_and_datatypes() -> None:
    page = """<p prefix="ov: http://v.org/terms/ s: https://schema.org/" about="https://e/x"
        typeof="s:Person ov:Dev"><i property="ov:likes schema:name">Liger</i>
        <i property="s:age" datatype="xsd:integer">42</i><i property="unknown">x</i>
        <i property="https://w.org/p" content="c" datatype="">x</i></p>"""
    assert say(page) == {
        "https://e/x": [
            "a <Person>",
            "a <http://v.org/terms/Dev>",
            '<http://v.org/terms/likes> "Liger"',
            '<name> "Liger"',
            '<age> "42"^^<xsd:integer>',
            '<https://w.org/p> "c"',
        ]
    }


def test_prefixes_are_pairs_of_words() -> None:
    page = """<p prefix="junk : x: tag: S:
        https://schema.org/ unfinished:" about="https://e/x" typeof="s:Person">
        <i property="s:name tag:likes unfinished:x">Ann</i></p>"""
    assert say(page) == {
        "https://e/x": [
            "a <Person>",
            '<name> "Ann"',
            '<tag:likes> "Ann"',
            '<unfinished:x> "Ann"',
        ]
    }


def test_relations_forward_backward_and_with_the_object_further_inside() -> None:
    page = """<div about="https://e/x" typeof="schema:Person">
        <a rel="schema:knows" rev="schema:follows" href="https://e/y">y</a>
        <div rel="schema:worksFor"><p about="https://e/z" typeof="schema:Organization">z</p></div>
        <div rel="schema:address"><i property="schema:name">home</i></div>
        <a rel="nofollow" href="https://e/n">n</a>
        <div rel="schema:owner" typeof="schema:Person" resource="[_:o]"></div></div>
        <p about="_:o" typeof="schema:Person"><i property="schema:name">Owner</i></p>"""
    things = say(page)
    owner = next(iri for iri in things if iri.startswith("urn:skolem:"))
    said = things["https://e/x"]
    address = next(line for line in said if line.startswith("<address>"))
    assert address.startswith("<address> <urn:skolem:")
    assert [line for line in said if line != address] == [
        "a <Person>",
        "<knows> <https://e/y>",
        "<worksFor> <https://e/z>",
        f"<owner> <{owner}>",
    ]
    assert things["https://e/z"] == ["a <Organization>"]
    assert things[owner] == ["a <Person>", '<name> "Owner"']


def test_a_thing_without_a_name_has_its_properties() -> None:
    page = """<div vocab="https://schema.org/"><div typeof="Person"><b property="name">A</b></div>
        <div property="mentions" typeof="Person"><b property="name">B</b></div></div>"""
    assert [*say(page).values()] == [["a <Person>", '<name> "A"'], ["a <Person>", '<name> "B"']]


def test_what_stands_in_no_vocabulary_says_nothing() -> None:
    page = '<meta property="og:title" content="x"><p typeof="Person" property="name">x</p>'
    assert say(page) == {}
