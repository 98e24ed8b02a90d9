"""Costs by function: a script's own functions are opened, libraries' are told whole, callers pay for what they call."""

import cProfile
import time

import pytest

from stoker.doctor.functions import costs_by_function, is_opened, name_of


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


SCRIPT = """
def sample(lib):
    crop(lib)
    lib["decode"]()
    lib["Compose"]([lib["flip"], lib["decode"]])()

def crop(lib):
    burn(0.02)

def recursive(lib, depth=3):
    burn(0.005)
    if depth:
        recursive(lib, depth - 1)
"""
LIBRARY = """
def decode():
    burn(0.01)
    helper()

def helper():
    burn(0.02)

def flip():
    burn(0.01)

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self):
        for t in self.transforms:
            t()
"""


def loaded(text, file):
    scope = {"burn": burn}
    exec(compile(text, file, "exec"), scope)
    return scope


SITE = "/env/site-packages/lib/transforms.py"
LIB, SCRIPTS = loaded(LIBRARY, SITE), loaded(SCRIPT, "/work/data.py")


def is_installed(file):
    return "site-packages" in file or file == __file__


def profiled(function, num=2):
    profile = cProfile.Profile(time.thread_time)
    for _ in range(num):
        profile.enable()
        function(LIB)
        profile.disable()
    return costs_by_function(profile.getstats(), {function.__code__}, is_installed)


def of_test(seconds):
    return pytest.approx(seconds, rel=0.25)


def test_each_function_has_its_own_seconds():
    found = {
        name.partition(" ")[0]: s for name, s in profiled(SCRIPTS["sample"]).items() if s > 0.005
    }
    assert found == {"burn": of_test(0.04), "decode": of_test(0.12), "flip": of_test(0.02)}


def test_names_are_as_people_know_them():
    names = profiled(SCRIPTS["sample"])
    assert "decode (lib)" in names and "flip (lib)" in names
    assert "crop (data.py:7)" in names
    assert name_of("<method 'read' of '_io.BufferedReader' objects>") == "BufferedReader.read"
    assert name_of("<built-in method torch._C._nn.gelu>") == "torch._C._nn.gelu"


def test_a_function_that_calls_itself_is_told_once():
    found = profiled(SCRIPTS["recursive"], num=1)
    assert sum(found.values()) == of_test(0.02)


@pytest.mark.parametrize(
    ("name", "expected"), [("Compose.__call__", True), ("decode", False), ("helper", False)]
)
def test_of_libraries_only_lists_of_transforms_are_opened(name, expected):
    found = LIB[name.partition(".")[0]]
    code = found.__call__.__code__ if "." in name else found.__code__
    assert is_opened(code, is_installed) is expected


def test_what_was_never_called_costs_nothing():
    assert costs_by_function([], {LIB["flip"].__code__}, is_installed) == {}
