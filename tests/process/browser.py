"""Debian's Chromium, headless, driven by playwright: what a page shows, asks for and complains of."""

import contextlib
import shutil
import time
from dataclasses import dataclass, field

import pytest

PATIENCE_S = 60.0
CHROMIUM = shutil.which("chromium")


@dataclass
class Watched:
    """What a page has done that it should not. requests: to anywhere but `host`."""

    host: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def requested(self, url):
        if not url.startswith((f"{self.host}/", "data:")):
            self.requests.append(url)


@contextlib.contextmanager
def browsing(url, width=1000, height=900, **context):
    """A page at an address, and what is noted of it. Skips the test where there is no browser."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, **context)
        watched = Watched("/".join(url.split("/")[:3]))
        page.on("console", lambda said: watched.complaints.append(said.text))
        page.on("pageerror", lambda error: watched.complaints.append(str(error)))
        page.on("request", lambda request: watched.requested(request.url))
        page.goto(url)
        yield page, watched
        browser.close()


def wait(page, expression):
    """Wait until an expression is true in the page. Not by playwright's own: that one has the page evaluate it, which its
    policy forbids."""
    end_s = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end_s, (expression, page.inner_text("body"))
        page.wait_for_timeout(50)
