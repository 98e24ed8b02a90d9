"""The pictures of README and docs show what stoker is now, and every one is shown somewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
MADE = json.loads((PICTURES / "made.json").read_text())
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]


def test_no_picture_is_older_than_what_it_shows():
    command = [sys.executable, str(ROOT / "scripts" / "pictures.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_shows_something_else_is_told(tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import pictures
    finally:
        sys.path.pop(0)
    picture = pictures.ALL["report.png"]
    assert MADE["report.png"]["shows"] == pictures.shows(picture)
    assert pictures.shows(picture._replace(shows=(*picture.shows, "README.md"))) != pictures.shows(
        picture
    )


@pytest.mark.parametrize("name", sorted(MADE))
def test_every_picture_is_there_small_and_shown_with_words(name):
    file = PICTURES / name
    assert 1000 < file.stat().st_size < 600_000
    shown = [
        words
        for page in PAGES
        for words, where in re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page.read_text())
        if (page.parent / where).resolve() == file.resolve()
    ]
    assert shown, f"no page shows {name}"


@pytest.mark.parametrize("name", sorted(name for name in MADE if name.endswith(".svg")))
def test_a_picture_of_a_terminal_asks_for_nothing(name):
    text = (PICTURES / name).read_text()
    assert not re.findall(r"(?:href|src|url)\s*[=(]", text)
    assert "/work/" not in text and "/tmp/" not in text
