"""A loader is named by the script's own line, not by the package that iterates it."""

import contextlib
import sys
from pathlib import Path

import pytest

import stoker
from stoker.intercept.loader import place_of

STD = "/venv/lib/python3.11/site-packages/tqdm/std.py"


def installed(file):
    """A generator of another package that asks for the place, as tqdm iterates what it is given."""
    names = {"__name__": "tqdm.std", "place_of": place_of, "sys": sys}
    exec(compile("def ask():\n    yield place_of(sys._getframe())\n", file, "exec"), names)
    return names["ask"]


def test_the_line_of_the_script_is_named():
    line = sys._getframe().f_lineno + 1
    (place,) = list(installed(STD)())
    assert place.endswith(f"test_place.py:{line}")


def test_pythons_own_frames_are_passed_by():
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: places.append(place_of(sys._getframe())))
        places = []
        line = sys._getframe().f_lineno - 2
    assert places[0].endswith(f"test_place.py:{line}")


def test_without_a_line_of_the_scripts_the_packages_is_named():
    class Frame:
        class f_code:  # noqa: N801
            co_filename = STD

        f_globals = {"__name__": "tqdm.std"}  # noqa: RUF012
        f_lineno, f_back = 7, None

    assert place_of(Frame) == f"{STD}:7"


@pytest.mark.parametrize(
    ("file", "name"),
    [(f"{Path(stoker.__file__).parent}_experiments/train.py", "train"), ("/train.py", None)],
)
def test_a_script_beside_stoker_or_of_no_name_is_the_scripts(file, name):
    names = {"__name__": name, "place_of": place_of, "sys": sys}
    exec(compile("place = place_of(sys._getframe())", file, "exec"), names)
    assert names["place"].endswith("train.py:1")
