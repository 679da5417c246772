"""Finding words however they are written."""

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.guardrails.phrases import PhraseFound, Phrases, Sieve
from tests.in_one_test import in_one_test

PHRASES = Phrases(["weapon", "credit card", "暴力", "café"])


@in_one_test(
    "text",
    [
        "a weapon",
        "WEAPON!",
        "wea\u200bpon",
        "w\u00adeapon\u2060",
        "\uff57\uff45\uff41pon",
        "ⓦⓔⓐⓟⓞⓝ",
        "my credit\n\n  card",
        "credit-card",
        "Credit_Card?",
        "我喜欢暴力电影",
        "cafe\u0301",
        "CAFÉ",
        "we\ufe0fap\U000e0101on",
        "w\u0336e\u0336a\u0336p\u0336o\u0336n\u0336",
        "w\u20ddeapon",
    ],
)
def test_a_phrase_is_found_however_it_is_written(text: str) -> None:
    assert PHRASES.find(text) is not None


@in_one_test("text", ["", "weapons", "a card on credit", "creditcard", "cafeteria"])
def test_a_part_of_a_word_is_another_word(text: str) -> None:
    assert PHRASES.find(text) is None


@in_one_test("phrase", ["", "  ", "\u200b", "!?"])
def test_a_phrase_without_a_letter_would_match_everything_and_is_refused(phrase: str) -> None:
    with pytest.raises(ConfigurationFailed, match="no letter and no digit"):
        Phrases([phrase])


def test_a_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigurationFailed, match="Expected a list"):
        Phrases("weapon")


DISGUISED = Phrases(
    [
        "bombs",
        "politics",
        "credit card",
        "AI",
        "暴力",
        "\u0431\u043e\u043c\u0431\u0430",
        "hell",
        "penis",
        "nowhere",
    ]
)


@in_one_test(
    "texts",
    [
        *(["b.o.m.b.s"], ["bo.mbs"], ["b_o_m_b_s"], ["b*o*m*b*s"], ["B-O-M-B-S!"], ["A.I."]),
        *(["b o m b s"], ["b  o  m  b  s"], ["make a b o m b s ."], ["b o mbs"], ["b, o, m, b, s"]),
        *(["c r e d i t c a r d"], ["c.r.e.d.i.t c.a.r.d"], ["c r e d i t  card"]),
        *(["暴.力"], ["我 暴 力"], ["我喜欢暴", "力电影"]),
        *(["b\u043embs"], ["\u0440\u043el\u0456t\u0456cs"], ["\u0412\u041e\u041c\u0412S"]),
        *(["b\u03bfmbs"], ["\u0299\u1d0f\u1d0d\u0299\ua731"], ["b\u200b\u043em\u200bbs"]),
        *(["\u0431o\u043c\u0431a"], ["\u0431 \u043e \u043c \u0431 \u0430"]),
        *(["b0mbs"], ["b 0 m b s"], ["po1it1cs"], ["poIitics"], ["p0l!t!c$"], ["b.0.m.b.s"]),
        *(
            ["bo", "mbs"],
            ["make bo ...", "... mbs now"],
            ["b", "omb", "s please"],
            ["b o m", "b s"],
        ),
        *(["b\u0301o\u0301mbs"], ["b\u200b\u043e\u0301mbs"], ["\uff42\u0323\uff4f\u200bmbs"]),
        *(["b\u0301 o\u0301 m\u0301 b s"], ["bo\u0301", "mbs"]),
        *(["credit", "card"], ["my cre", "dit card"], ["my cr.e", "d.it card"], ["b0", "mb\u0455"]),
    ],
)
def test_a_phrase_is_found_in_disguise(texts: list[str]) -> None:
    assert DISGUISED.search(texts) is not None


@in_one_test(
    "texts",
    [
        *(
            [],
            [""],
            [" ", "!"],
            ["he'll come"],
            ["the pen is red"],
            ["now here I am"],
            ["creditcard"],
        ),
        *(["plan a I prefer"], ["room 80 88 5"], ["bomb s"], ["penises"]),
        *(["\u0432\u043e\u0442 \u043a\u043e\u0442"], ["hello.", "Is it?"], ["bo", "and", "mbs"]),
        *(["b\xf3mbs"], ["\u0431\u043e\u043c\u0431\u0430\u0941"]),
        *(["bo" + " " * 500 + "x", "mbs"], ["we", "ll"], ["a b c", "d e f"]),
    ],
)
def test_what_only_resembles_a_phrase_is_none(texts: list[str]) -> None:
    assert DISGUISED.search(texts) is None


@in_one_test(
    "text",
    ["a" * 10**6, "a " * 5 * 10**5, "!" * 10**6, "b!" * 5 * 10**5, "a." * 5 * 10**5, "_-" * 10**6],
    ids=lambda text: text[:4],
)
def test_no_text_takes_long_to_be_judged(text: str) -> None:
    began = process_time()
    assert DISGUISED.search([text, text[:9]]) is None

    assert process_time() - began < 10  # seconds; a second on a quiet machine


ALPHABET = "aáb \n-_.\u200b暴力\u0301ﬁ①"


@given(
    st.lists(st.text(ALPHABET, max_size=6), max_size=12),
    st.lists(st.sampled_from(["a", "ab", "a b", "b a b", "暴力", "á", "fi a", "1 b"]), max_size=4),
)
def test_a_sieve_finds_what_the_whole_text_holds_and_loses_nothing(
    pieces: list[str], words: list[str]
) -> None:
    phrases = Phrases(words)
    sieve, shown, found = Sieve(phrases), "", False
    try:
        for piece in pieces:
            shown += sieve.push(piece)
            assert phrases.find(f"{shown}") is None or _may_go_on(phrases, shown)
        shown += sieve.end()
    except PhraseFound:
        found = True
    assert found == (phrases.find("".join(pieces)) is not None)
    assert found or shown == "".join(pieces)


def _may_go_on(phrases: Phrases, shown: str) -> bool:
    """A word at the very end of what is shown is no match: its letters may go on."""
    return all(phrases.find(f"{shown}{letter}") is None for letter in "xyz")


def test_a_possible_start_of_a_phrase_is_withheld_and_the_rest_flows() -> None:
    sieve = Sieve(Phrases(["credit card"]))
    assert [sieve.push(piece) for piece in ("My cre", "dit ", "rating ", "is fine")] == [
        "My ",
        "",
        "credit rating ",
        "is fine",
    ]


def test_the_withheld_text_is_bounded() -> None:
    sieve = Sieve(Phrases(["credit card"]))
    assert sieve.push("credit" + " " * 100_000) != ""
