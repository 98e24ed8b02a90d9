"""How many hosts, where, and how soon again: remote/engines/hosts.py."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.remote.engines.hosts import (
    AGAIN_AT_MOST_S,
    AGAIN_S,
    KILLED_SETTLED_S,
    SETTLED_S,
    Backoff,
    Bounds,
    Claim,
    cpus_of,
    cpus_of_host,
    host_name,
    missing,
    num_hosts,
    shares,
    to_give_back,
)


def test_a_host_that_ends_at_once_waits_twice_as_long_each_time():
    backoff = Backoff()
    waits_s = [backoff.ended(0.0) for _ in range(10)]
    assert waits_s[:4] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S, 8 * AGAIN_S]
    assert waits_s[-1] == backoff.ended(SETTLED_S - 0.1) == AGAIN_AT_MOST_S


def test_a_host_that_lived_is_started_again_soon():
    backoff = Backoff()
    for _ in range(5):
        backoff.ended(0.0)
    assert backoff.ended(SETTLED_S) == AGAIN_S
    assert backoff.ended(0.0) == 2 * AGAIN_S


def test_a_host_that_is_killed_now_and_then_is_started_again_soon():
    backoff = Backoff()
    assert [backoff.ended(KILLED_SETTLED_S, was_killed=True) for _ in range(5)] == 5 * [AGAIN_S]
    backoff.ended(0.0, was_killed=True)
    assert backoff.ended(0.0, was_killed=True) == 4 * AGAIN_S


@pytest.mark.parametrize(
    ("workers", "first", "of_nine", "of_none"),
    [(None, None, None, None), ("4", 4, 4, 4), ("2:6", 2, 6, 2), ("0:6", 1, 6, 0)],
)
def test_only_a_span_moves(workers, first, of_nine, of_none):
    bounds = Bounds.of(workers)
    assert (bounds.first, bounds.clamp(9), bounds.clamp(0)) == (first, of_nine, of_none)


def test_those_without_a_place_are_given_back_first_then_whole_nodes():
    node_of = {0: "a", 1: "a", 2: "b", 3: "c", 4: "b", 5: "c", 6: "a", 7: None, 8: "d"}
    assert to_give_back(node_of, 0) == [7, 8, 5, 3, 4, 2, 6, 1, 0]
    assert to_give_back(node_of, 7) == [7, 8]
    assert to_give_back(node_of, 9) == []


@given(
    st.lists(st.sampled_from(["a", "b", "c", None])).map(lambda nodes: dict(enumerate(nodes))),
    st.integers(0, 12),
)
def test_at_most_one_node_is_given_back_in_part(node_of, num_hosts):
    given_back = to_give_back(node_of, num_hosts)
    kept = set(node_of) - set(given_back)
    assert len(kept) == min(num_hosts, len(node_of))
    nodes_of = [{node_of[n] for n in numbers} - {None} for numbers in (kept, given_back)]
    assert len(nodes_of[0] & nodes_of[1]) <= 1


def test_every_cpu_of_every_node_gets_a_host():
    assert missing({"a": 2, "b": 1}, {0: "a", 1: "gone"}, None) == ["a", "b"]
    assert missing({"a": 2}, {0: "a", 1: "a"}, None) == []


def test_so_many_as_wanted_whatever_room_there_is():
    assert missing({"a": 1}, {0: "a", 1: None}, 4) == [None, None]
    assert missing({"a": 9}, {0: "a"}, 0) == []


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_machines_cpus_are_its_hosts(num_cpus, num_used):
    """num_cpus: that it has; num_used: of which this run may use so many."""
    num_used = min(num_cpus, num_used)
    names = [host_name("host 7", k) for k in range(num_hosts(num_cpus))]
    found = [cpus_of_host(name, {"host 7": num_used, "host 77": 3}) for name in names]
    assert sum(found) == num_used
    assert sorted(found, reverse=True) == found and max(found) <= 8


# -- several runs ------------------------------------------------------------------------------------

CPUS = {"a": 4, "b": 4}


def totals(cpus, claims):
    return {run: given.total() for run, given in shares(cpus, claims).items()}


def test_runs_that_want_all_have_the_same_and_every_cpu_is_somebodys():
    claims = {run: Claim(None, 0) for run in "xyz"}
    assert sorted(totals(CPUS, claims).values()) == [2, 3, 3]
    given = shares(CPUS, claims)
    assert sum(given.values(), Counter()) == CPUS


def test_who_wants_less_leaves_the_rest_to_the_others():
    assert totals(CPUS, {"x": Claim(1, 0), "y": Claim(None, 0)}) == {"x": 1, "y": 7}
    assert totals(CPUS, {"x": Claim(3, 0), "y": Claim(3, 0)}) == {"x": 3, "y": 3}
    assert totals(CPUS, {"x": Claim(0, 0)}) == {"x": 0}


def test_a_trainers_own_node_is_left_to_the_others():
    claims = {"x": Claim(None, 0, ("a",)), "y": Claim(None, 0, ("b",))}
    assert shares(CPUS, claims) == {"x": Counter(b=4), "y": Counter(a=4)}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
    st.dictionaries(
        st.sampled_from("xyz"),
        st.builds(
            Claim,
            st.none() | st.integers(0, 9),
            st.just(0),
            st.lists(st.sampled_from("abcd")).map(tuple),
        ),
    ),
)
def test_no_cpu_is_given_twice_nor_to_whom_it_is_no_use(cpus, claims):
    given = shares(cpus, claims)
    for node, num in cpus.items():
        assert sum(of[node] for of in given.values()) <= num
    for run, of in given.items():
        assert of.total() <= (99 if claims[run].num_wanted is None else claims[run].num_wanted)
        assert not set(+of) & set(claims[run].barred)


def test_nobody_gives_anything_back_while_all_have_their_share():
    claims = {"x": Claim(9, 6), "y": Claim(2, 2)}
    assert cpus_of("x", CPUS, claims) == CPUS
    assert cpus_of("x", CPUS, {"x": Claim(None, 0)}) == CPUS


def test_who_has_more_than_its_share_gives_back_while_another_has_less():
    claims = {"x": Claim(None, 8), "y": Claim(None, 0)}
    ours, theirs = cpus_of("x", CPUS, claims), cpus_of("y", CPUS, claims)
    assert sum(ours.values()) == sum(theirs.values()) == 4
    assert {node: ours[node] + theirs[node] for node in CPUS} == CPUS
    claims = {"x": Claim(8, 8), "y": Claim(8, 0)}
    assert sum(cpus_of("x", CPUS, claims).values()) == 4
