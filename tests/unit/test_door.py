"""The door: what `import stoker` shows, and what it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker import errors

FOLDER = Path(stoker.__file__).parent
ROOMS = {file.stem if file.is_file() else file.name for file in FOLDER.iterdir()}


def test_the_door_is_exactly_all():
    public = {name for name in dir(stoker) if not name.startswith("_")} - ROOMS
    of_ipython = {"load_ipython_extension", "unload_ipython_extension"}
    assert public - {"TYPE_CHECKING"} == set(stoker.__all__) - {"__version__"} | of_ipython


def test_no_room_takes_the_name_of_something_on_the_door():
    assert ROOMS.isdisjoint(stoker.__all__)


def test_every_name_on_the_door_is_there():
    assert all(hasattr(stoker, name) for name in stoker.__all__)


DECLARED = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, stoker.StokerError)
}


def test_every_error_that_the_screen_declares_is_on_the_door():
    assert DECLARED.keys() == {name for name in stoker.__all__ if name[0].isupper()}


def test_every_error_has_a_slug_of_its_own():
    assert len({kind.slug for kind in DECLARED.values()}) == len(DECLARED)


@pytest.mark.parametrize("kind", DECLARED.values(), ids=DECLARED)
def test_the_slug_of_an_error_is_a_heading_of_its_page(kind):
    assert f"\n### {kind.slug}\n" in (FOLDER.parents[1] / errors.DOCS).read_text()


def test_a_bad_setting_is_a_value_error_too():
    assert issubclass(stoker.ConfigError, ValueError)


def test_importing_stoker_imports_neither_torch_nor_numpy_nor_our_rooms():
    code = "import stoker, sys; print(*[m for m in sys.modules if m.split('.')[0] in " \
           "('torch', 'numpy', 'stoker')])"  # fmt: skip
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(shown) == {"stoker"}


def test_the_package_says_that_it_is_typed():
    assert (FOLDER / "py.typed").is_file()
