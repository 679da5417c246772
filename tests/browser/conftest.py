"""What a browser test needs: Chromium, the built page, a runtime and a model that is told."""

import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright

from copilot_runtime import CopilotRuntime, OpenAIAdapter
from tests.browser.build import built_page, new_profile, one_origin
from tests.browser.chat import Chat
from tests.browser.fake_model import FakeModel, running_model
from tests.wire_agui.server import serving

# a browser that talks to nobody but the page under test
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # The last list of features counts, so this is Playwright's own. What it lacks: two lists below
    # the address bar, which are pages too and would cost each profile as much as the page under
    # test, and a process in advance for the next page.
    "--disable-features=AvoidCorsURLLoaderRestartOnRedirect,AvoidUnnecessaryBeforeUnloadCheckSync,"
    "AimEnabled,DestroyProfileOnBrowserClose,HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,"
    "LensOverlay,MediaRouter,NetworkTimeServiceQuerying,OptimizationHints,PaintHolding,"
    "PreconnectToSearch,ThirdPartyStoragePartitioning,"
    "SpareRendererForSitePerProcess,WebUIOmniboxAimPopup,WebUIOmniboxPopup",
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Share one event loop among the tests of a module: browser and servers live in it."""
    return "asyncio"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium; without one there is nothing to test."""
    path = shutil.which("chromium")
    if path is None and os.environ.get("CI"):
        pytest.fail("No Chromium on this machine: in CI the browser tests must run.")
    if path is None:
        pytest.skip("No Chromium on this machine: install Debian's package 'chromium'.")
    return path


@pytest.fixture(scope="session")
def page_folder(chromium: str) -> Path:
    """Return the built page; where there is no browser, nothing is built."""
    return built_page("react-v1")


@pytest.fixture(scope="module")
async def browser(anyio_backend: str, chromium: str) -> AsyncGenerator[Browser, None]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def model(anyio_backend: str) -> AsyncGenerator[FakeModel, None]:
    async with running_model() as model:
        yield model


@pytest.fixture
async def runtime(
    anyio_backend: str, page_folder: Path, model: FakeModel
) -> AsyncGenerator[str, None]:
    """Serve a runtime and the page; return their address."""
    adapter = OpenAIAdapter(model="gpt-4o", base_url=f"{model.url}/v1", api_key="sk-wrong")
    async with serving(one_origin(page_folder, CopilotRuntime(adapter))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def chat(
    anyio_backend: str,
    browser: Browser,
    runtime: str,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Chat, None]:
    """Return an open page in a fresh profile; keep a picture of how each test left it.

    Whatever a test does, the page may not ask anything of another host.
    """
    context = await new_profile(browser, 1280, 760)
    chat = Chat(await context.new_page())
    await chat.open(runtime)
    yield chat
    await chat.keep(request.node.name.removeprefix("test_"))
    await context.close()
    assert chat.foreign_requests() == []
