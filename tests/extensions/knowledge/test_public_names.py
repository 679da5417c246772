"""`copilot_runtime.knowledge`: the names that documents import."""

import pytest

from copilot_runtime import knowledge
from tests.in_one_test import in_one_test


@in_one_test("name", knowledge.__all__)
def test_each_public_name_is_importable(name: str) -> None:
    assert getattr(knowledge, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Knowlege'"):
        _ = getattr(knowledge, "Knowlege")  # noqa: B009
