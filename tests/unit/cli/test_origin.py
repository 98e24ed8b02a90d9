"""What to give to pip for this stoker: never the name of somebody else's package."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.cli.checks.origin import PACKAGE, advice, requirement

ROOT = Path(__file__).resolve().parents[3]


def test_a_wheel_a_folder_and_an_url_are_named_as_pip_takes_them(tmp_path):
    wheel = tmp_path / "my wheels" / "stoker-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    site = Path("/env/lib/python3.11/site-packages/stoker")
    of_wheel = {"url": wheel.as_uri(), "archive_info": {}}
    assert requirement(of_wheel, site, "cluster") == f"{wheel}[cluster]"
    assert requirement({"url": tmp_path.as_uri(), "dir_info": {}}, site) == str(tmp_path)
    at = {"url": "https://host/stoker.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert requirement(at, site, "cluster") == "stoker[cluster] @ git+https://host/stoker.git@abc"
    assert (
        requirement({"url": "https://host/s.whl", "archive_info": {}}, site)
        == "stoker @ https://host/s.whl"
    )


def test_where_nobody_can_tell_no_name_is_made_up(tmp_path):
    site = tmp_path / "site-packages" / "stoker"
    gone = {"url": (tmp_path / "gone").as_uri(), "dir_info": {}}
    assert requirement(None, site, "cluster") is None
    assert requirement(gone, site) is None


def test_a_checkout_on_the_path_is_named():
    assert requirement(None, PACKAGE, "cluster") == f"{ROOT}[cluster]"


def test_the_advice_of_this_very_stoker_holds(tmp_path):
    """pip itself reads it: the name and version that it would install are ours."""
    words = advice(sys.executable, "gradients")
    assert words.startswith(f"{sys.executable} -m pip install ")
    assert words.endswith(("[gradients]", "[gradients]'")) and f"{ROOT}" in words


@pytest.mark.parametrize("folder", ["src", "docs", "README.md", "CHANGELOG.md", "examples"])
def test_no_advice_names_a_package_that_is_not_ours(folder):
    start = ROOT / folder
    files = (
        [start] if start.is_file() else [f for f in start.rglob("*") if f.suffix in (".py", ".md")]
    )
    found = [
        f"{file.relative_to(ROOT)}: {match}"
        for file in files
        for match in re.findall(
            r"""pip install (?:-\S+ )*["']?stoker\b(?!-| @)\S*""", file.read_text()
        )
    ]
    assert found == []


def test_stoker_run_tells_where_this_stoker_lies(tmp_path):
    """An environment without stoker: the command that the line ends with names this checkout."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = bare / "bin" / "python"
    environ = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "stoker", "run", "--", str(python), "-c", "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    assert done.returncode == 2
    assert f"install it there: {python} -m pip install {ROOT}" in done.stderr
    assert f"stoker=={stoker.__version__}" not in done.stderr
