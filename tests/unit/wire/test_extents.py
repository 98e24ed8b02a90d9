"""The allocator of an arena: extents never overlap, and all comes back."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from stoker.wire.arena.extents import ALIGN_NBYTES, Extents

PAGE = ALIGN_NBYTES
LIMIT = 16 * PAGE + 100  # the odd bytes at the end are never used


class Model(RuleBasedStateMachine):
    """Extents against a list of which page belongs to whom."""

    given_out = Bundle("given_out")

    def __init__(self):
        super().__init__()
        self.extents = Extents(LIMIT)
        self.owner = [None] * (LIMIT // PAGE)
        self.lowest_free_run = None

    @rule(target=given_out, nbytes=st.integers(0, 5 * PAGE))
    def take(self, nbytes):
        num_pages = max(1, -(-nbytes // PAGE))
        fits = [
            first
            for first in range(len(self.owner) - num_pages + 1)
            if not any(self.owner[first : first + num_pages])
        ]
        offset = self.extents.take(nbytes)
        assert offset == (fits[0] * PAGE if fits else None), "first fit, from the bottom"
        if offset is not None:
            first = offset // PAGE
            self.owner[first : first + num_pages] = [f"at {offset}"] * num_pages
        return offset

    @rule(offset=consumes(given_out))
    def give(self, offset):
        if offset is not None:
            self.extents.give(offset)
            self.owner = [None if who == f"at {offset}" else who for who in self.owner]

    @rule()
    def begin_again_from_what_is_taken(self):
        taken = [
            (int(who.split()[1]), sum(other == who for other in self.owner) * PAGE - 1)
            for who in dict.fromkeys(filter(None, self.owner))
        ]
        self.extents = Extents(LIMIT, reversed(taken))

    @invariant()
    def what_is_used_is_counted(self):
        assert self.extents.used_nbytes == sum(who is not None for who in self.owner) * PAGE


Model.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestExtents = Model.TestCase


def test_neighbours_join_whatever_the_order_of_return():
    for order in ((0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)):
        extents = Extents(3 * PAGE)
        offsets = [extents.take(PAGE) for _ in range(3)]
        for i in order:
            extents.give(offsets[i])
        assert extents.take(3 * PAGE) == 0


@pytest.mark.parametrize("offset", [PAGE, 1, -PAGE])
def test_what_was_not_given_out_cannot_come_back(offset):
    extents = Extents(4 * PAGE)
    extents.take(1)
    with pytest.raises(KeyError):
        extents.give(offset)


def test_an_extent_comes_back_once():
    extents = Extents(4 * PAGE)
    extents.give(extents.take(1))
    with pytest.raises(KeyError):
        extents.give(0)


def test_an_arena_smaller_than_a_page_holds_nothing():
    assert Extents(PAGE - 1).take(1) is None
