"""What a short chat and a chunk cost in bytecodes, which are the same on any machine."""

import sys
from collections.abc import Mapping

import pytest

from benchmarks.steps import count_steps

MOST: Mapping[str, Mapping[str, int]] = {
    "v1": {"chat": 19_350, "chunk": 1_156},
    "AG-UI": {"chat": 20_450, "chunk": 1_960},
    "AG-UI agent": {"chat": 18_100, "chunk": 1_788},
}
"""With libraries, so that work that moves into them counts; a busy machine adds 1 % by asyncio. A
change may add 2 %. Lower a figure when it falls; `python -m benchmarks.steps` prints parts."""


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="Each Python has other bytecodes.")
@pytest.mark.parametrize("way", MOST)
def test_a_chat_takes_no_more_steps_than_before(way: str) -> None:
    steps = {unit: round(found.total) for unit, found in count_steps(way).items()}

    shares = {unit: count / MOST[way][unit] for unit, count in steps.items()}
    assert all(0.95 <= share <= 1.02 for share in shares.values()), steps
