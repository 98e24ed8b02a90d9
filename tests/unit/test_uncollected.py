import gc
import os

import pytest

from stoker.uncollected import uncollected


def test_nothing_is_collected_inside_and_all_is_as_before_afterwards():
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_script_that_collects_nothing_goes_on_so():
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_child_that_is_forked_meanwhile_collects():
    with uncollected():
        pid = os.fork()
        if pid == 0:
            os._exit(gc.isenabled())
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1
