"""A browser for the tests of the page: Debian's Chromium. Without it they are left out, or fail where it is a must."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
REMEDY = "there is no Chromium, so the tests of the page were left out; to have them: apt-get install chromium"


@pytest.fixture(scope="session")
def chromium():
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None and os.environ.get("FEDMIM_BROWSER") == "required":
        pytest.fail("FEDMIM_BROWSER=required, and there is no Chromium: apt-get install chromium")
    if program is None:
        pytest.skip(REMEDY)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Open an address; at the end nothing was asked of any other machine, and the console had nothing to say."""
    heard, asked, contexts = [], [], []

    def open_page(address, width=1280, height=900, scheme="light", **options):
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_selector("[data-chart=accuracy][data-drawn]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
    assert [url for url in asked if not url.startswith(("file:///", "data:", "blob:", "http://127.0.0.1:"))] == []
