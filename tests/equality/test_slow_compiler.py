"""A trainer's machine whose compiler takes as long as the test says, while hosts send it batches.

Decoders are machine code, which the receiver has to make where nobody did. Were it waited for, the
trainer would take its receiver for dead.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import behind_link
from benchmarks.behind_link import HERE, beyond, held_to
from torch.utils.data import DataLoader

from stoker.clock import Deadline
from stoker.remote.engines.processes import HOST
from stoker.remote.trainer.fleet import Fleet
from tests.equality.fleets import SETTINGS, fleet_of
from tests.equality.images import Images
from tests.equality.sides import both
from tests.needs import NEEDS_NAMESPACES

PATIENCE_S = 60.0
# Of the receiver's process alone: the module begins when somebody has written.
GATE = """
import sys
from importlib.machinery import PathFinder

class Gate:
    def find_spec(self, name, path, target=None):
        if name != "stoker.wire.lossless.kernels":
            return None
        spec = PathFinder.find_spec(name, path)
        go_on = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (open({gate!r}).close(), go_on(module))
        return spec

if "stoker.remote.trainer.receiver" in sys.orig_argv:
    sys.meta_path.insert(0, Gate())
"""

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_NAMESPACES]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: the module's hosts stay for its tests."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiler") / "gate"


@pytest.fixture(scope="module")
def fleet(gate: Path) -> Iterator[Fleet]:
    """In place of the folder's own."""
    os.mkfifo(gate)
    (gate.parent / "sitecustomize.py").write_text(GATE.format(gate=str(gate)))
    with behind_link.link(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(gate.parent))
        host = beyond((sys.executable, *HOST))
        yield from fleet_of(SETTINGS["cluster"], bind=HERE, host=host)


def images(num_workers: int) -> DataLoader:
    return DataLoader(Images(320), 8, True, num_workers=num_workers)


def test_batches_travel_as_they_are_until_the_compiler_is_done(places, fleet, gate):
    with held_to("100mbit", burst="128kb"):
        both(images, iter)
        assert not fleet.is_gone and places.num_away > 0, places.said
        assert all(s.stats.wire_nbytes >= s.stats.raw_nbytes > 0 for s in places.drivers)
        gate.write_text("")  # whoever waits there goes on
        deadline = Deadline(PATIENCE_S)
        while (last := places.drivers[-1].stats).raw_nbytes < 3 * last.wire_nbytes:
            assert not deadline.is_over(), places.said
            both(images, iter)
    assert not fleet.is_gone, places.said
