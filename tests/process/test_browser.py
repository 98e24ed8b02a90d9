"""The live page in a real browser, on real runs: what people see, on every screen, whatever ends the run."""

import os
import signal
import sys

import pytest

from stoker.cli.tell.page import page_of
from stoker.live.server import PageServer
from stoker.stalls.split import Seen
from tests.needs import NEEDS_FUSE
from tests.process.browser import browsing, wait
from tests.process.harness import SCRIPTS, started, under_stoker
from tests.process.live import url_of
from tests.unit.cli.runs import a_run
from tests.unit.live.feeds import a_day

pytestmark = pytest.mark.full
BATCHES = """Number([...document.querySelectorAll("#now div")].find((tile) => tile.firstChild.textContent.startsWith("batches"))
    .lastChild.textContent.replaceAll(",", ""))"""
COMMAND = [*under_stoker("--page"), sys.executable, "live.py"]
DRAWN = "Number(document.documentElement.dataset.updates) > {}"
UPDATES = "Number(document.documentElement.dataset.updates)"
SPANS = "Number(document.documentElement.dataset.spans)"


@pytest.fixture
def live(tmp_path):
    with started(COMMAND, tmp_path, stdin=None) as running:
        yield running, url_of(running)


def no_complaint(watched):
    assert (watched.complaints, watched.requests) == ([], [])


def test_it_loads_updates_and_survives_the_end(live):
    running, url = live
    with browsing(url) as (page, watched):
        wait(page, DRAWN.format(3))
        assert page.title() == "stoker: running"
        before = page.evaluate(BATCHES)
        wait(page, f"{BATCHES} > {before + 10}")
        assert "live.py" in page.inner_text("#loaders")
        assert "127.0.0.1:0" in page.inner_text("#settings") and "--page" in page.inner_text(
            "#settings"
        )
        assert page.locator("#rate canvas").count() == 1
        page.wait_for_selector("#workers:not([hidden])")
        assert "2 places" in page.inner_text("#workers-words")
        running.say("exit")
        assert running.process.wait(60) == 0
        wait(page, "document.title === 'stoker: ended'")
        assert page.inner_text("#state").startswith("ended: exit, after ")
        assert page.get_attribute("#state", "aria-live") == "polite"  # a screen reader says so
        assert f"{page.evaluate(BATCHES):,}" in page.inner_text("#loaders")
        num = page.evaluate(UPDATES)
        page.wait_for_timeout(2500)  # it would have asked twice
        assert page.evaluate(UPDATES) == num
        no_complaint(watched)


@NEEDS_FUSE
def test_it_shows_what_was_read_of_mounts(tmp_path):
    for k in range(40):
        (tmp_path / "data" / f"c{k % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / f"c{k % 2}" / f"{k}.bin").write_bytes(os.urandom(50_000))
    mount = f"--mount={tmp_path / 'at'}=file://{tmp_path / 'data'}"
    words = [str(SCRIPTS / "reads_mount.py"), str(tmp_path / "at"), "listed", "2", "2", "4"]
    command = [*under_stoker("--page", mount), sys.executable, *words]
    with started(command, tmp_path, stdin=None) as running:
        with browsing(url_of(running)) as (page, watched):
            running.wait_for("waits")  # the first epoch is over
            wait(page, "document.querySelector('#storage').innerText.includes('2 MB')")
            assert page.inner_text("#storage-heading") == "Files of mounts"
            row = page.locator("#storage tbody tr").inner_text().split("\t")
            # Forty files, and the lists of three folders.
            assert row[:-1] == ["this one", "2 MB", "0 B", "0 B", "43", "0"]
            no_complaint(watched)
        running.say("go on")
        assert running.finish().returncode == 0


def test_it_says_so_when_the_machine_is_gone(live):
    running, url = live
    with browsing(url) as (page, _):
        wait(page, DRAWN.format(1))
        os.killpg(running.process.pid, signal.SIGKILL)
        wait(
            page, "document.querySelector('#state').textContent.includes('no answer from the run')"
        )
        assert page.locator("#loaders tr").count() == 2  # what was known stays


def test_a_reload_shows_all_of_the_run_again(live):
    _, url = live
    with browsing(url) as (page, watched):
        wait(page, f"{SPANS} > 3")
        before = page.evaluate(SPANS)
        page.reload()
        wait(page, f"{SPANS} > 3")
        assert page.evaluate(SPANS) >= before
        no_complaint(watched)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000])
def test_it_is_readable_on_every_screen(live, width, scheme):
    with browsing(live[1], width, color_scheme=scheme) as (page, watched):
        wait(page, DRAWN.format(2))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink, paper = (
            page.evaluate(f"getComputedStyle(document.body).{name}")
            for name in ("color", "backgroundColor")
        )
        assert contrast(ink, paper) > 7  # WCAG 2.2, 1.4.6
        dim = page.evaluate("getComputedStyle(document.querySelector('dt')).color")
        assert contrast(dim, paper) > 4.5  # 1.4.3
        no_complaint(watched)


def test_nothing_of_a_report_is_cut_on_a_telephone(tmp_path):
    why = "a batch in 1.00 s: sample 7 for 0.90 s, most of it in decode (slow_samples.py:16)"
    run = a_run(rate=98_765, num_s=3)
    run = run._replace(slowest=[step._replace(why=why) for step in run.slowest])
    page_file = tmp_path / "report.html"
    page_file.write_text(page_of([run, a_run("20270116-080000-8")]))
    with browsing(f"file://{page_file}", 400) as (page, _):
        cut = page.evaluate(
            """[...document.querySelectorAll("body *:not(.skip)")].filter(e => {
                const box = e.getBoundingClientRect();
                return box.left < 0 || box.right > 400.5 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0;
            }).map(e => e.outerHTML.slice(0, 200))"""
        )
        assert cut == []
        head = "getComputedStyle(document.querySelector('td[data-head=took]'), '::before').content"
        assert "took" in page.evaluate(head)


def test_a_report_draws_what_it_holds_of_each_run(tmp_path):
    slow, fast = a_run(seen=Seen(compute_s=0.5, copy_s=0.25)), a_run("20270116-080000-8", rate=100)
    page_file = tmp_path / "report.html"
    page_file.write_text(page_of([slow, fast]))
    with browsing(f"file://{page_file}") as (page, watched):
        at_the_end = "samples a second at the end: train.py:9"
        assert page.get_attribute("#rate", "aria-label") == f"{at_the_end} 400"
        assert "the model 50 %" in page.get_attribute("#now-split .bar", "aria-label")
        assert "copying to the device\t15 s\t25 %" in page.inner_text("#split-table")
        assert page.get_attribute("#steps", "aria-label").startswith("3,000 steps, from 1")
        assert "the model 50 %, waiting for data 25 %" in page.inner_text("#slowest")
        assert "train.py:9: 3,000 batches by 2 workers" in page.inner_text("#summary")
        assert "pin_memory=True" in page.inner_text("#hints")
        compared = page.inner_text("#compared")
        assert "samples a second, from the first batch on\t406.8\t813.6\t2.00x" in compared
        assert not page.locator("#host-section").is_visible()
        page.click("#runs button:last-child")
        assert page.get_attribute("#rate", "aria-label") == f"{at_the_end} 800"
        assert page.title() == "stoker: 20270115-080000-7 and 20270116-080000-8"
        assert watched.complaints == []


def contrast(a, b):
    """Source: WCAG 2.2, contrast ratio."""
    low, high = sorted(_luminance(color) for color in (a, b))
    return (high + 0.05) / (low + 0.05)


def _luminance(color):
    parts = [int(part) / 255 for part in color.strip("rgb()").split(",")]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_keyboard_and_a_screen_reader_reach_everything(live):
    with browsing(live[1]) as (page, _):
        page.wait_for_selector("#workers:not([hidden])")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        page.keyboard.press("Enter")
        page.wait_for_selector("#workers-table td")
        assert "% busy" in page.inner_text("#workers-table")
        unnamed = page.evaluate(
            "[...document.querySelectorAll('[role=img]')].filter(e => !e.getAttribute('aria-label')).length"
        )
        assert unnamed == 0
        assert "samples a second" in page.get_attribute("#rate", "aria-label")
        assert page.evaluate("document.documentElement.lang") == "en"


def test_a_day_of_256_workers_is_drawn(tmp_path):
    server = PageServer("127.0.0.1:0", "a token", a_day(), lambda: None)
    server.begin()
    with browsing(server.url) as (page, watched):
        wait(page, DRAWN.format(2))
        assert page.evaluate(SPANS) == 2880
        assert "256 places" in page.inner_text("#workers-words")
        assert "51 lost" in page.inner_text("#workers-words")
        no_complaint(watched)
    server.shutdown()
    server.server_close()


def test_a_click_on_the_address_in_another_page_opens_it(live):
    site = live[1].replace("127.0.0.1", "localhost").partition("?")[0]
    with browsing("data:text/html,<a href='{}'>page</a>".format(live[1].replace("&", "&amp;"))) as (
        page,
        _,
    ):
        page.click("a")
        wait(page, "document.title === 'stoker: running'")
    with browsing(live[1]) as (page, _):  # a page of another origin may not read it
        read = page.evaluate(f"fetch('{site}data').then(() => 'read', () => 'refused')")
        assert read == "refused"


def test_a_wrong_token_shows_why(live):
    with browsing(live[1].partition("?")[0] + "?token=wrong") as (page, _):
        assert "open the address that the run has printed" in page.inner_text("body")
