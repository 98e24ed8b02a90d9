"""Make the pictures of README and docs from real runs: the terminal, the live page, the report, stoker top.

usage: scripts/pictures.py [--only NAME ...] [--check]      --check makes nothing: exit code 1 where one shows something else by now

Promise: nothing in them is drawn by hand. docs/pictures/made.json tells of each when it was made and what it shows: files
whose change makes it old. tests/unit/test_pictures.py holds them to that.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import screens

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
MADE = PICTURES / "made.json"
TRAIN = ["python", "train.py", "--data", "photos"]
BIN = str(Path(sys.executable).parent)
WATCH_S = 22.0  # how much of a run the page shows
PAGE = ("src/stoker/live/static/page.*", "src/stoker/live/feed.py")


class Picture(NamedTuple):
    """Describes a picture. shows: patterns of files whose change makes it old; make: writes it, given its path."""

    shows: tuple[str, ...]
    make: Callable[[Path], None]


def before_and_after(file: Path) -> None:
    """A script in a terminal, plain and under stoker."""
    rows = []
    with place() as folder:
        for command in (TRAIN, ["stoker", "run", "--", *TRAIN]):
            words = [*command, "--epochs", "2"]
            began_s = time.monotonic()
            rows += [f"$ {' '.join(words)}", *screens.screen_of(words, folder, BIN)]
            rows += [f"[{time.monotonic() - began_s:.1f} s from start to end]", ""]
    file.write_text(svg_of(rows[:-1], "A script in a terminal, plain and under stoker"))


def top(file: Path) -> None:
    """`stoker top` while a run lasts, in 80 columns."""
    with running("--quiet") as (environ, _):
        time.sleep(WATCH_S)  # so long the run is
        script = "from stoker.cli.tell import top; from stoker.cli.tell.runs import logs; "
        script += "print('\\n'.join(top.screen(top._run(logs()[-1]), 80, 24, top.BLOCKS)))"
        done = subprocess.run(
            [sys.executable, "-c", script], env=environ, check=True, capture_output=True, text=True
        )
    file.write_text(svg_of(["$ stoker top", *done.stdout.splitlines()], "stoker top"))


def svg_of(rows: list[str], label: str) -> str:
    """The rows of a terminal as a picture, in the reader's own monospaced font."""
    wide, tall = max(map(len, rows)) * 7.83 + 28, len(rows) * 18 + 26
    text = "".join(
        f'<text x="14" y="{26 + 18 * k}"{COMMAND if row.startswith("$ ") else OURS if row.startswith("stoker: ") else ""} '
        f'textLength="{7.83 * len(row):.1f}" xml:space="preserve">{escape(row)}</text>'
        for k, row in enumerate(rows) if row
    )  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall}" role="img" aria-label="{escape(label)}">'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#e6edf3">{text}</g></svg>\n'
    )


COMMAND, OURS = ' fill="#7ee787"', ' fill="#79c0ff"'


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder with a training script and its photographs, as a user has them."""
    # A run that has just ended may still write its log there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shutil.copy(ROOT / "examples" / "images" / "train.py", folder)
        Path(folder, "photos").symlink_to(screens.PHOTOS)
        yield Path(folder)


def environ_of(folder: Path) -> dict[str, str]:
    """An environment with logs of runs of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")}
    own = {
        "XDG_STATE_HOME": str(folder / "state"),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}{os.pathsep}{clean['PATH']}",
    }
    return clean | own


@contextlib.contextmanager
def running(*flags: str) -> Iterator[tuple[dict[str, str], Path]]:
    """A training run, by its environment and the file with its stderr."""
    with place() as folder:
        environ, said = environ_of(folder), folder / "stderr"
        command = [
            "stoker",
            "run",
            *flags,
            "--report-json",
            "report.json",
            "--",
            *TRAIN,
            "--epochs",
            "60",
        ]
        with said.open("w") as err:
            process = subprocess.Popen(
                command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=err
            )
            try:
                yield environ, said
            finally:
                process.terminate()
                process.wait(30)


def page(width: int, scheme: str) -> Callable[[Path], None]:
    def make(file: Path) -> None:
        """The live page of a run."""
        with running("--page", "--quiet") as (_, said):
            while not (found := re.search(r"page: (\S+)", said.read_text())):
                time.sleep(0.1)
            while not answers(found[1]):
                time.sleep(0.1)
            shoot(found[1], file, width, scheme, WATCH_S)

    return make


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url).read())
    except OSError:
        return False


def report(file: Path) -> None:
    """The report of a run, beside the same run as plain PyTorch."""
    with place() as folder:
        environ = environ_of(folder)
        for flags in (["--off"], []):
            command = ["stoker", "run", *flags, "--", *TRAIN, "--epochs", "4"]
            subprocess.run(command, env=environ, check=True, cwd=folder, capture_output=True)
        subprocess.run(
            ["stoker", "report"], env=environ, check=True, cwd=folder, capture_output=True
        )
        shoot(f"file://{folder}/stoker-report.html", file, 900, "light", 0)


def shoot(url: str, file: Path, width: int, scheme: str, watch_s: float) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        shown.goto(url)
        shown.wait_for_timeout(1000 * watch_s)
        shown.evaluate(HIDE)
        shown.screenshot(path=file, full_page=True)
        browser.close()


# Paths of this machine say nothing to a reader.
HIDE = r"""() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) walk.currentNode.textContent = walk.currentNode.textContent.replace(/(\/[\w.-]+)+\/(?=[\w.-])/g, "");
}"""

REPORT = (*PAGE, "src/stoker/cli/tell/page.py", "src/stoker/stalls/split.py")
ALL = {
    "terminal.svg": Picture(
        ("src/stoker/reports/summary/*.py", "examples/images/train.py"), before_and_after
    ),
    "top.svg": Picture(("src/stoker/cli/tell/top.py", "src/stoker/stalls/split.py"), top),
    "page-light.png": Picture(PAGE, page(1000, "light")),
    "page-dark.png": Picture(PAGE, page(1000, "dark")),
    "page-400.png": Picture(PAGE, page(400, "light")),
    "report.png": Picture(REPORT, report),
}


def shows(picture: Picture) -> str:
    """What a picture shows, as a digest of the files."""
    files = sorted(file for pattern in picture.shows for file in ROOT.glob(pattern))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def old() -> list[str]:
    """Pictures that are missing, or show what is another by now."""
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    return [
        name
        for name, picture in ALL.items()
        if not (PICTURES / name).exists() or made.get(name, {}).get("shows") != shows(picture)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/pictures.py", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, help="default: those that are old")
    parser.add_argument("--check", action="store_true", help="make nothing")
    flags = parser.parse_args()
    if flags.check:
        for name in old():
            print(
                f"docs/pictures/{name} is old: scripts/pictures.py makes it anew", file=sys.stderr
            )
        return 1 if old() else 0
    if not screens.PHOTOS.exists():
        make = [
            sys.executable,
            str(ROOT / "examples" / "images" / "photos.py"),
            str(screens.PHOTOS),
        ]
        subprocess.run(make, check=True)
    PICTURES.mkdir(exist_ok=True)
    made = json.loads(MADE.read_text()) if MADE.exists() else {}
    for name in flags.only or old():
        ALL[name].make(PICTURES / name)
        made[name] = {"made": f"{datetime.now(UTC):%Y-%m-%d}", "shows": shows(ALL[name])}
        MADE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
        print(f"docs/pictures/{name}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
