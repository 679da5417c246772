"""Finding words however they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.security.phrases import PhraseFound, Phrases, Sieve

PHRASES = Phrases(["weapon", "credit card", "暴力", "café"])


@pytest.mark.parametrize(
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
        "we\ufe0fapon",
    ],
)
def test_a_phrase_is_found_however_it_is_written(text: str) -> None:
    assert PHRASES.find(text) is not None


@pytest.mark.parametrize("text", ["", "weapons", "a card on credit", "creditcard", "cafeteria"])
def test_a_part_of_a_word_is_another_word(text: str) -> None:
    assert PHRASES.find(text) is None


@pytest.mark.parametrize("phrase", ["", "  ", "\u200b", "!?"])
def test_a_phrase_without_a_letter_would_match_everything_and_is_refused(phrase: str) -> None:
    with pytest.raises(ConfigurationFailed, match="no letter and no digit"):
        Phrases([phrase])


def test_a_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigurationFailed, match="Expected a list"):
        Phrases("weapon")


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


def test_what_may_begin_a_phrase_is_held_back_and_the_rest_flows() -> None:
    sieve = Sieve(Phrases(["credit card"]))
    assert [sieve.push(piece) for piece in ("My cre", "dit ", "rating ", "is fine")] == [
        "My ",
        "",
        "credit rating ",
        "is fine",
    ]


def test_a_held_beginning_does_not_grow_without_end() -> None:
    sieve = Sieve(Phrases(["credit card"]))
    assert sieve.push("credit" + " " * 100_000) != ""
