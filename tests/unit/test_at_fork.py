"""Which functions that run at a fork are the script's: this file's are, packages' are not."""

import functools
import logging
import os
import random
import threading

import pandas._libs.lib
import pytest
import torch

from stoker import at_fork


class Ours:
    def method(self) -> None: ...

    def __call__(self) -> None: ...


class Raises:
    @property
    def __module__(self) -> str:  # type: ignore[override]
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "function", [lambda: None, Ours().method, Ours(), functools.partial(functools.partial(Ours().method))],
    ids=["function", "method", "object", "partial"],
)  # fmt: skip
def test_what_is_written_in_the_script_counts(function):
    assert at_fork._is_scripts(function)


@pytest.mark.parametrize(
    "function", [random.seed, logging.shutdown, threading.Lock().release, torch.manual_seed, at_fork._mark,
                 pytest.fail, pandas._libs.lib.map_infer, Raises(), None],
    ids=["random", "logging", "lock", "torch", "stoker", "package", "Cython", "raises", "None"],
)  # fmt: skip
def test_what_others_have_written_does_not_count_and_nothing_raises(function):
    assert not at_fork._is_scripts(function)


def test_a_lock_counts_while_it_is_held():
    lock = threading.Lock()
    assert not at_fork._is_scripts(lock.acquire)
    with lock:
        assert at_fork._is_scripts(lock.acquire)


def test_the_lists_of_this_python_are_found():
    """In a child: what is registered cannot be taken back."""
    assert not at_fork.has_functions_of_the_scripts()
    pid = os.fork()
    if pid == 0:
        os.register_at_fork(after_in_child=lambda: None)
        os._exit(at_fork.has_functions_of_the_scripts())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
