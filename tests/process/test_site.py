"""The site that scripts/site makes: strict, whole, without another host, and every link leads somewhere."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings")
ELSEWHERE = re.compile(r"(?:https?:)?//")


@dataclass
class Html(HTMLParser):
    """What a page has: anchors, links (of `a`), and what a browser fetches to show it."""

    page: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        where = [found[name] for name in ("href", "src") if name in found]
        if tag == "a":
            self.links += where
        else:
            self.fetched += where


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; scripts/setup full does")
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Html]:
    return {page: Html(page) for page in site.rglob("*.html")}


def test_every_page_of_the_docs_is_there(site):
    docs = ROOT / "docs"
    wanted = [page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")]
    assert {Path("index.html"), Path("errors.html"), Path("api.html")} < set(wanted)
    assert Path("how-to/slow-images.html") in wanted
    assert [page for page in wanted if not (site / page).is_file()] == []


def test_the_first_page_is_the_readme_and_the_api_is_that_of_the_docstrings(site):
    readme = (ROOT / "README.md").read_text()
    for heading in re.findall(r"^## (.+)$", readme, re.MULTILINE):
        assert heading in (site / "index.html").read_text()
    anchors = Html(site / "api.html").anchors
    assert {"stoker.install", "stoker.ConfigError", "stoker.api.snapshot.LoaderReport"} < anchors


def test_no_page_fetches_anything_from_another_host(site, pages):
    for page, html in pages.items():
        assert [url for url in html.fetched if ELSEWHERE.match(url)] == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text()) == []


def test_every_link_leads_to_a_page_and_a_heading_that_are_there(site, pages):
    dead = [
        f"{page.relative_to(site)}: {link}"
        for page, html in pages.items()
        for link in [*html.links, *html.fetched]
        if not re.match(r"[a-z]+:", link) and not leads(link, page, site, pages)
    ]
    assert dead == []


def leads(link: str, page: Path, site: Path, pages: dict[Path, Html]) -> bool:
    path, _, anchor = unquote(link).partition("#")
    folder = site if path.startswith("/") else page.parent  # 404.html: shown below any path
    target = Path(os.path.normpath(folder / path.lstrip("/"))) if path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return not anchor or target not in pages or anchor in pages[target].anchors


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="here">A</h1><a href="b.html">B</a>')
    page = tmp_path / "a.html"
    pages = {page: Html(page)}
    assert pages[page].links == ["b.html"]
    answers = [leads(link, page, tmp_path, pages) for link in ("b.html", "#there", "a.html#here")]
    assert answers == [False, False, True]
