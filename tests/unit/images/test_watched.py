"""Whether what a library's functions call is its own still is told at every moment, and raises nothing."""

import importlib.util
import subprocess
import sys

import pytest
from PIL import Image

from stoker.images.hooks import _Watched
from stoker.images.native import PLAIN, native

NAME = "stoker_test_library"
CODE = """
class Image:
    def load(self): ...

def open(): ...
"""
CALLED = [(NAME, "Image", "load close"), (NAME, "", "open")]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A module that is being imported, and what ends that."""
    file = tmp_path / f"{NAME}.py"
    file.write_text(CODE)
    spec = importlib.util.spec_from_file_location(NAME, file)
    module = importlib.util.module_from_spec(spec)
    spec._initializing = True
    monkeypatch.setitem(sys.modules, NAME, module)

    def end():
        spec.loader.exec_module(module)
        spec._initializing = False

    return module, end


def test_a_module_that_is_being_imported_is_not_known_yet(library):
    _, end = library
    watched = _Watched(CALLED)
    assert not watched.is_own()
    end()
    assert watched.is_own()


def test_what_is_not_imported_cannot_have_been_replaced():
    assert _Watched(CALLED).is_own()


@pytest.mark.parametrize("name", ["load", "close"])
def test_what_is_replaced_is_seen_until_it_is_put_back(library, monkeypatch, name):
    module, end = library
    end()
    watched = _Watched(CALLED)
    assert watched.is_own()
    with monkeypatch.context() as patched:
        patched.setattr(module.Image, name, lambda self: None, raising=False)
        assert not watched.is_own()
    assert watched.is_own()
    module.Image = type("Image", (module.Image,), {})
    assert not watched.is_own()


def test_what_was_replaced_before_is_not_the_librarys(library):
    module, end = library
    end()
    module.open = lambda: None
    watched = _Watched(CALLED)
    assert not watched.is_own() and watched.replaced == NAME


FIRST = """
import sys
from PIL import Image
from stoker.fast.report import FastWish
from stoker.images.hooks import FastImages
assert "PIL.ImageFile" not in sys.modules  # as in a worker of which no file was opened before
fast = FastImages(lambda shape, dtype: None, FastWish(False, {}))
fast.look()
Image.open(sys.argv[1]).resize((9, 9)).tobytes()
print(sum(place.num_made for place in fast.news()), fast.why)
"""


@pytest.mark.skipif(native is None or native.simd == PLAIN, reason="there is no fast way here")
def test_the_first_image_of_a_worker_is_made_fast(tmp_path):
    file = tmp_path / "photo.jpg"
    Image.new("RGB", (64, 48), "red").save(file)
    made = subprocess.check_output([sys.executable, "-c", FIRST, file], text=True)
    assert made.split() == ["1"]
