"""A frame says its own length, and refuses another version's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import BrokenGuarantee
from stoker.wire.frame import HEADER, INLINE, MAGIC, PLACE, Kind, pack, unpack

u64 = st.integers(0, 2**63)


@given(
    kind=st.sampled_from(Kind),
    flags=st.integers(0, 7),
    task_id=st.integers(-1, 2**62),
    chain=st.integers(-1, 2**31 - 1),
    places=st.lists(st.tuples(st.integers(-1, 2**62), u64, u64), max_size=5),
    num_storages=st.integers(0, 5),
    stream_nbytes=u64,
    blob_nbytes=u64,
    blob_offset=st.integers(-1, 2**62),
    extra_nbytes=st.integers(0, 2**20),
)
def test_a_header_survives_the_wire(places, num_storages, **fields):
    num_storages = min(num_storages, len(places))
    table = b"".join(PLACE.pack(*place) for place in places)
    data = pack(places=(table, num_storages, len(places) - num_storages), **fields)
    header = unpack(memoryview(b"before" + data), 6)
    assert {name: getattr(header, name) for name in fields} == fields
    assert (header.magic, header.num_storages) == (MAGIC, num_storages)
    assert data[HEADER.size :] == table and header.table_nbytes() == len(table)


def test_the_length_counts_a_blob_only_where_it_travels_along():
    table = PLACE.pack(0, 1, 0)
    inline = unpack(
        memoryview(pack(Kind.BATCH, places=(table, 1, 0), blob_nbytes=7, extra_nbytes=3)), 0
    )
    elsewhere = unpack(
        memoryview(
            pack(Kind.BATCH, places=(table, 0, 1), blob_nbytes=7, blob_offset=0, extra_nbytes=3)
        ),
        0,
    )
    assert inline.blob_offset == INLINE
    assert inline.payload_nbytes() == PLACE.size + 7 + 3
    assert elsewhere.payload_nbytes() == PLACE.size + 3


def test_a_frame_of_another_version_is_refused():
    data = b"s\x01" + pack(Kind.TASK)[2:]
    with pytest.raises(BrokenGuarantee, match=r"starts with b's\\x01', not b's\\x03'"):
        unpack(memoryview(data), 0)


def test_kinds_have_different_numbers():
    assert len({int(kind) for kind in Kind}) == len(Kind)
