"""RDFa becomes statements, as pages use it."""

from tests.extensions.knowledge.rdf.statements import say


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
