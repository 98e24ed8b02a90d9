"""Plain objects of large containers that W workers share."""

import sys

import pytest

from stoker.local import immortal

NUM = immortal.MIN_NUM + 1
CAN = sys.version_info >= (3, 12) and not immortal.why_not()


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
    held = Held(plain=plain, other=other, by_name={f"k{k}": complex(k, 1) for k in range(NUM)})
    # Of a pair the tuple, its text, its number, the tuple inside and what that holds.
    assert immortal.share(held) == 5 * NUM + 2 * NUM
    for each in (plain[7], *plain[7], plain[7][2][0], held.by_name["k7"]):
        more = [each] * 100
        assert sys.getrefcount(more[0]) > 1 << 30
    assert all(sys.getrefcount(each) < 100 for each in (other[7], *other[7]))
