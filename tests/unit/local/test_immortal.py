"""Plain objects of large containers that W workers share."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.local import immortal

ROOT = Path(__file__).parents[3]
NUM = immortal.MIN_NUM + 1
HAS_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()
CAN = (3, 12) <= sys.version_info[:2] <= (3, 14) and HAS_LOCK and immortal._make is not None


class Held:
    def __init__(self, **held):
        vars(self).update(held)


def test_large_containers_are_found_in_what_a_dataset_holds_and_no_others():
    pairs, by_name, rows = [(0, 1)] * NUM, dict.fromkeys(range(NUM)), (0.5,) * NUM
    parts = {"train": Held(pairs=pairs, all=[by_name, rows]), "val": [1] * immortal.MIN_NUM}
    parts["itself"] = parts
    found = list(immortal._large_in(Held(dataset=Held(parts=parts))))
    assert sorted(map(id, found)) == sorted(map(id, (pairs, by_name, rows)))


def test_what_they_take_is_told_by_some_of_them():
    pairs = [(f"train/{k:08}.jpg", k + 1000) for k in range(NUM)]
    (one,) = {sys.getsizeof(pair) + sum(map(sys.getsizeof, pair)) for pair in pairs}
    assert immortal.nbytes_in(Held(pairs=pairs, few=[(0, 1)] * 9)) == NUM * one
    by_name = {f"{k:08}": [k] for k in range(NUM)}
    assert immortal.nbytes_in(Held(by_name=by_name)) == NUM * sys.getsizeof("00000000")


@pytest.mark.skipif(CAN, reason="of Pythons that count references to all objects")
def test_elsewhere_the_reason_is_told_and_nothing_is_done():
    values = [float(k) for k in range(NUM)]
    assert immortal.share(Held(values=values)) == 0 and immortal.why_not()
    assert sys.getrefcount(values[5]) < 10


@pytest.mark.skipif(not CAN, reason="of CPython 3.12 and later")
def test_plain_objects_are_immortal_and_no_others():
    plain = [(f"file {k}", k + 1000.5, (b"%d" % k,)) for k in range(NUM)]
    kinds = type("Text", (str,), {}), type("Number", (float,), {})
    other = [(kinds[0](k), kinds[1](k), [k], (k, object())) for k in range(NUM)]
    by_name, names = ({f"{n}{k}": complex(k, 1) for k in range(NUM)} for n in "kn")
    held = Held(plain=plain, other=other, by_name=by_name, names=set(names))
    # Of a pair the tuple, its text, its number, the tuple inside and what that holds.
    assert immortal.share(held) == 5 * NUM + 2 * NUM + NUM
    for each in (plain[7], *plain[7], plain[7][2][0], by_name["k7"], *list(names)[:1]):
        assert sys.getrefcount(each) > 1 << 30
    assert all(sys.getrefcount(each) < 100 for each in (other[7], *other[7]))


@pytest.mark.skipif(not CAN, reason="of CPython 3.12 and later")
def test_a_pair_with_none_or_true_in_it_is_plain():
    pairs = [(f"file {k}", None, k % 2 == 0) for k in range(NUM)]
    immortal.share(Held(pairs=pairs))
    assert sys.getrefcount(pairs[7]) > 1 << 30 < sys.getrefcount(pairs[7][0])


@pytest.mark.parametrize("name", ["python3.12", "python3.13", "python3.14"])
def test_other_pythons_that_are_here_can_do_it(name):
    """The same compiled library serves them all."""
    found = shutil.which(name)
    # pyenv's: which of them it starts is set elsewhere.
    if found is not None and Path(found).parent.name == "shims":
        found = next(
            map(str, Path(found).parents[1].glob(f"versions/{name[6:]}.*/bin/python")), None
        )
    if found is None or immortal._make is None:
        pytest.skip(f"no {name} here, or no compiler")
    program = "from stoker.local import immortal; print(immortal.why_not() or 'can')"
    environ = {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [found, "-S", "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "can\n", done.stderr
