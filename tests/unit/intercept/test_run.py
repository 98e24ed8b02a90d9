"""What of the script is shipped to other machines: intercept/run.py."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ASK = "from stoker.intercept.run import code_folder; print(code_folder())"
FILES = ("script.py", "pack/__init__.py", "pack/__main__.py", "pack/deep/train.py", "__main__.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(ASK if name != "pack/__init__.py" else "")
    return tmp_path


def said(words: list[str], cwd: Path) -> str:
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "words",
    [["script.py"], ["-m", "script"], ["-m", "pack"], ["-m", "pack.deep.train"], ["."]],
    ids=" ".join,
)
def test_the_folder_that_is_on_the_scripts_path(folder, words):
    assert said(words, folder) == str(folder)


def test_a_script_in_a_package_is_a_script_all_the_same(folder):
    assert said(["pack/deep/train.py"], folder) == str(folder / "pack/deep")


def test_nothing_of_an_interactive_session(folder):
    assert said(["-c", ASK], folder) == "None"


@pytest.mark.parametrize("scheme", ["purelib", "scripts"])
def test_the_environment_is_not_shipped(folder, scheme):
    """A command of an installed package: workers have what is installed there."""
    at = sysconfig.get_path(scheme)
    fake = f"import sys; m = sys.modules['__main__']; m.__file__ = {at + '/lightning'!r}; {ASK}"
    assert said(["-c", fake], folder) == "None"
