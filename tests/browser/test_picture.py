"""The picture of the README has what `make run` shows."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.picture import PICTURE, take_picture

pytestmark = pytest.mark.anyio


def read_size(picture: Path) -> bytes:
    """Return the width and the height of a PNG, as they are written."""
    return picture.read_bytes()[16:24]


async def test_the_picture_of_the_readme_shows_what_make_run_shows(
    browser: Browser, tmp_path: Path
) -> None:
    await take_picture(browser, tmp_path / "now.png")

    assert read_size(tmp_path / "now.png") == read_size(PICTURE)
