"""Which workers have to move for every host to have as many: `Away.crowd`, without a host."""

import pytest

from stoker.remote.trainer.away import Away, _Latest
from tests.slots import C


def away(*hosts, capacity):
    """Its worker of slot k is on the k-th of these."""
    made = Away(None, 0, 1)
    made.capacity = capacity
    made._latest = {C[k]: _Latest(0, pid=1, node="n", host=host) for k, host in enumerate(hosts)}
    return made


@pytest.mark.parametrize(
    ("hosts", "capacity", "crowd"),
    [
        ("abc", 3, ()),
        ("aabc", 4, (1,)),  # d is new
        ("aaaa", 2, (2, 3)),
        ("aaab", 3, (2,)),
        ("aabb", 1, ()),
        ("", 2, ()),
    ],
)
def test_who_shares_a_host_moves_where_others_have_fewer(hosts, capacity, crowd):
    made = away(*hosts, capacity=capacity)
    assert made.crowd(C[: len(hosts)]) == tuple(C[k] for k in crowd)
