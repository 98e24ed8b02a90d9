"""Which workers have to move for every host to have as many: `Away.crowd`, without a host."""

import pytest

from stoker.remote.net import control
from stoker.remote.trainer.away import Away, _Latest
from tests.slots import C


def away(*hosts, slots):
    """Its worker of slot k is on the k-th of these. slots: that each host has."""
    made = Away(None, 0, 1)
    made.take_in(control.Capacity(0, slots))
    made._latest = {C[k]: _Latest(0, pid=1, node="n", host=host) for k, host in enumerate(hosts)}
    return made


@pytest.mark.parametrize(
    ("hosts", "slots", "crowd"),
    [
        ("abc", {"a": 1, "b": 1, "c": 1}, ()),
        ("aabc", {"a": 1, "b": 1, "c": 1, "d": 1}, (1,)),  # d is new
        ("aaaa", {"a": 1, "b": 1}, (2, 3)),
        ("aaab", {"a": 1, "b": 1, "c": 1}, (2,)),
        ("aabb", {"a": 1}, ()),  # b is lost: its workers end by that
        ("aaaab", {"a": 4, "b": 1}, ()),
        ("aaaaabc", {"a": 4, "b": 2, "c": 2}, (4,)),
        ("aaaaaa", {"a": 4, "b": 4}, (3, 4, 5)),
        ("aabbbb", {"a": 4, "b": 2}, (4, 5)),
        ("", {"a": 2}, ()),
    ],
)
def test_who_shares_a_host_moves_where_others_have_fewer(hosts, slots, crowd):
    made = away(*hosts, slots=slots)
    assert made.crowd(C[: len(hosts)]) == tuple(C[k] for k in crowd)
