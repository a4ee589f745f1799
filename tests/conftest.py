"""Makes the modules of tests/helpers importable from every test, in pytest's importlib mode.

Also a browser for the tests of pages: Debian's Chromium. Without it they are left out, or fail where it is a must.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# One thread for each worker of pytest-xdist: more of them than cores, waiting for each other, are twenty times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray clusters of tests listen on 127.0.0.1 alone; read when ray is imported.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

# A shell without job control starts background commands with SIGINT ignored, also in their children; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
