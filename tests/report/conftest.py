"""Pages of the tests, opened in the browser of tests/conftest.py."""

import pytest


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
