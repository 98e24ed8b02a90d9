"""The page of a run of 24 hours with 256 workers in Chromium, the report of such a run, and what keeps its log: one --case.

`page`: first_paint_ms, from the request until everything is drawn; update_ms, of the page's main thread, the longest of
twenty. `report`: seconds and megabytes of `stoker report`. `keeper`: resident megabytes of the process that keeps the
log and serves the page, fed with all seconds of the day at once.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from stoker.live.feed import Feed, Host, Tick
from stoker.live.server import PageServer
from stoker.reports.metrics import LoaderRecord, RunRecord, as_json
from stoker.runs.buckets import Look
from stoker.runs.crew import LOST, Crew, Place
from stoker.runs.file import Writer
from stoker.stalls.split import Seen

DAY_S, NUM_WORKERS = 24 * 3600, 256
NUM_UPDATES = 20
UPDATES = "Number(document.documentElement.dataset.updates || 0)"
ABOUT = {
    "command": ["python", "train.py"], "settings": {}, "origins": {}, "began_unix_s": 1.8e9, "host": "here",
    "world": None, "folder": "/", "stoker": "", "python": "", "torch": "", "began_s": 0.0, "pid": 7, "rank": None,
}  # fmt: skip
SETTINGS = {"kind": "settings", "about": ABOUT, "pid": 7, "rank": None, "began_s": 0.0}
LOADERS = [
    {"kind": "loader", "number": k, "place": f"train.py:{9 + k}", "offloaded": True, "reasons": [], "chains": 256}
    for k in range(2)
]  # fmt: skip


def tick_of(second: int) -> Tick:
    """Return a second of a run that trains and evaluates, whose workers come and go."""
    number = int(second % 600 > 540)
    done = LoaderRecord(number, f"train.py:{9 + number}", True, [], 256, 40 * second, 320 * second)
    done.wait_s, done.busy_s = second * 0.3, second * 0.7
    done.compute_s, done.other_s = second * 0.5, second * 0.1
    done.raw_nbytes = done.wire_nbytes = second << 20
    seen = Seen(0.0, 0.0, done.compute_s, 0.0, done.other_s)
    look = Look(second - 0.5, number, 40 * second, 320 * second, done.wait_s, done.busy_s, seen)
    places = [
        Place(k % 2, 0, 0 if (second // 900 + k) % 40 else LOST, k, 5 * second, (5 * second * (k % 10 + 1)) // 10)
        for k in range(NUM_WORKERS)
    ]  # fmt: skip
    crew = Crew(5 * second, 40 * second, places)
    lines = [SETTINGS, *LOADERS] if second == 1 else []
    run = RunRecord(wall_s=float(second))
    return Tick(second, lines, [look], run, [done], crew, Host(0.9, 8 << 30, 24 << 30), [])


def of_page() -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    feed = Feed()
    for second in range(1, DAY_S):
        feed.take(tick_of(second))
    server = PageServer("127.0.0.1:0", "of a benchmark", feed, lambda: None)
    server.begin()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(server.url)
        _until(page, lambda: page.evaluate(UPDATES) > 0)
        for second in range(DAY_S, DAY_S + NUM_UPDATES):
            seen = page.evaluate(UPDATES)
            feed.take(tick_of(second))
            _until(page, lambda seen=seen: page.evaluate(UPDATES) > seen)
        drawn = page.evaluate(
            "performance.getEntriesByType('measure').map((m) => [m.startTime, m.duration])"
        )
        num_spans = page.evaluate("Number(document.documentElement.dataset.spans)")
        browser.close()
    assert num_spans == 2880
    (began_ms, took_ms), *updates = drawn
    return {
        "first_paint_ms": began_ms + took_ms,
        "update_ms": max(took_ms for _, took_ms in updates),
    }


def _until(page: object, is_so: Callable[[], bool]) -> None:
    while not is_so():
        page.wait_for_timeout(20)  # type: ignore[attr-defined]


def of_report() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder, "stoker", "runs")
        writer = Writer(runs, dict(ABOUT))
        for second in range(1, DAY_S + 1):
            tick = tick_of(second)
            writer.take(
                [line for line in tick.lines if line["kind"] == "loader"],
                list(tick.looks),
                tick.at_s,
            )
        tick = tick_of(DAY_S)
        writer.end(
            as_json(
                tick.run,
                [LoaderRecord(k, f"train.py:{9 + k}", True, [], 256) for k in range(2)],
                "exit",
            )
        )
        writer.close()
        page = Path(folder, "page.html")
        command = [sys.executable, "-m", "stoker", "report", "--html", str(page)]
        began_s = time.perf_counter()
        subprocess.run(
            command,
            env=os.environ | {"XDG_STATE_HOME": folder},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        took_s = time.perf_counter() - began_s
        return {"report_s": took_s, "report_mb": page.stat().st_size / 1e6}


def of_keeper() -> dict[str, float]:
    """In a Python like the keeper's: without site."""
    code = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1] / 'src')]!r}\n"
        "import live_page; live_page.keep()"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-I", "-S", "-c", code, folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {"keeper_mb": float(done.stdout)}


def keep() -> None:
    """Keep a day's log, serve its page to one client, and print the most memory that it took, in megabytes."""
    import stoker.reports.keeper  # noqa: F401 - all that a keeper has

    feed, writer = Feed(), Writer(Path(sys.argv[1]), dict(ABOUT))
    server = PageServer("127.0.0.1:0", "of a benchmark", feed, lambda: None)
    server.begin()
    from http.client import HTTPConnection

    for second in range(1, DAY_S + 1):
        tick = tick_of(second)
        feed.take(tick)
        writer.take(
            [line for line in tick.lines if line["kind"] == "loader"], list(tick.looks), tick.at_s
        )
        if second % 600 == 0:
            client = HTTPConnection(*server.server_address[:2])
            client.request("GET", "/data", headers={"Authorization": f"Bearer {server.token}"})
            client.getresponse().read()
            client.close()
    status = Path("/proc/self/status").read_text()  # getrusage tells of who started it, too
    print(int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6)


CASES = {"page": of_page, "report": of_report, "keeper": of_keeper}


def main() -> None:
    from one_side import print_line

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    print_line(CASES[parser.parse_args().case]())


if __name__ == "__main__":
    main()
