"""Sections are found by their names in any order; what cannot be read is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import BrokenGuarantee
from stoker.wire.sections import (
    Section,
    Shape,
    Taken,
    pack_offsets,
    pack_section,
    pack_shapes,
    pack_taken,
    pack_wire,
    unpack_offsets,
    unpack_sections,
    unpack_shapes,
    unpack_taken,
    unpack_wire,
)

u63 = st.integers(0, 2**63 - 1)


@given(st.dictionaries(st.sampled_from(Section), st.binary(max_size=300)))
def test_each_section_comes_out_as_it_went_in(sections):
    extra = b"".join(pack_section(name, data) for name, data in sections.items())
    assert unpack_sections(memoryview(extra)) == sections


@given(
    st.lists(st.builds(Taken, u63, u63, u63, st.booleans())),
    st.lists(u63, min_size=1),
    u63,
    st.lists(
        st.none()
        | st.builds(
            Shape,
            st.text(max_size=9),
            u63,
            st.lists(u63).map(tuple),
            st.lists(st.integers(-(2**40), 2**40)).map(tuple),
        )
    ),
)
def test_what_the_sections_hold_comes_out_as_it_went_in(taken, returned, nbytes, shapes):
    extra = (
        pack_taken(taken)
        + pack_offsets(Section.RETURNED, returned)
        + pack_wire(nbytes)
        + pack_shapes(shapes)
    )
    found = unpack_sections(memoryview(extra))
    assert unpack_taken(found[Section.TAKEN]) == taken
    assert unpack_offsets(found[Section.RETURNED]) == tuple(returned)
    assert unpack_wire(found[Section.WIRE]) == nbytes
    said = unpack_shapes(found[Section.SHAPES])
    assert [s and s._replace(size=tuple(s.size), strides=tuple(s.strides)) for s in said] == shapes


def test_where_no_extent_came_back_there_is_no_section():
    assert pack_offsets(Section.RETURNED, []) == b""


@pytest.mark.parametrize(
    "extra",
    [b"\x01", pack_section(Section.POINT, b"a point")[:-1], b"\xfe" + b"\0" * 8],
    ids=["half a head", "cut off", "an unknown name"],
)
def test_an_extra_that_cannot_be_read_is_refused(extra):
    with pytest.raises(BrokenGuarantee, match="section"):
        unpack_sections(memoryview(extra))
