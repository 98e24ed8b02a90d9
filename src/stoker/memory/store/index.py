"""The index of a shelf: where the value of a key lies. Any worker may add to it, without a lock.

A slot of 48 bytes holds a key's digest, where its value lies, what it cost to make, and a checksum of the
slot: two workers that write to one slot at once leave a slot that nobody believes, and so a miss.

Promise: what `find` returns was added under exactly this key.
"""

import struct

import torch

from stoker.kept_files import BODY, CHECK_AT, KEY_NBYTES, SLOT_NBYTES, Entry, read_slot, slot_of
from stoker.kept_files import slot_checksum as _checksum

_PROBES = 16  # slots that a key may lie in
_PID, _PID_AT = struct.Struct("<I"), 32  # of the body
_EMPTY, _NO_KEY = bytes(SLOT_NBYTES), bytes(KEY_NBYTES)
_GONE = b"\xff" * SLOT_NBYTES


class Index:
    """memory: of num_slots * SLOT_NBYTES bytes, zeros at first; num_slots: a power of two."""

    def __init__(self, memory: memoryview, num_slots: int) -> None:
        assert num_slots & (num_slots - 1) == 0
        self._memory = memory
        self._mask = num_slots - 1

    def find(self, key: bytes) -> Entry | None:
        memory = self._memory
        for at in self._slots_of(key):
            slot = bytes(memory[at : at + SLOT_NBYTES])
            if slot.startswith(key) and slot.endswith(_checksum(slot[:CHECK_AT])):
                return Entry(*BODY.unpack_from(slot)[1:])
            if slot == _EMPTY:
                return None
        return None

    def add(self, key: bytes, entry: Entry) -> bool:
        """Add a key. Returns False if all its slots are taken by others."""
        made = slot_of(key, entry)
        for at in self._slots_of(key):
            slot = bytes(self._memory[at : at + SLOT_NBYTES])
            is_torn = slot[CHECK_AT:] != _checksum(slot[:CHECK_AT])
            if slot[:KEY_NBYTES] == key or is_torn:
                self._memory[at : at + SLOT_NBYTES] = made
                return True
        return False

    def load(self, slots: bytes, pid: int) -> None:
        """Add slots as another index has them, up to the first that is damaged; while nobody else
        writes. pid: in place of theirs."""
        memory, mask = self._memory, self._mask & ~(_PROBES - 1)
        maker = _PID.pack(pid)
        # Written out: a run may find a million.
        for at in range(0, len(slots) - SLOT_NBYTES + 1, SLOT_NBYTES):
            body = slots[at : at + CHECK_AT]
            if _checksum(body) != slots[at + CHECK_AT : at + SLOT_NBYTES]:
                break
            body = body[:_PID_AT] + maker + body[_PID_AT + _PID.size :]
            key = body[:KEY_NBYTES]
            first = int.from_bytes(key[:8], "little") & mask
            for there in range(first * SLOT_NBYTES, (first + _PROBES) * SLOT_NBYTES, SLOT_NBYTES):
                found = memory[there : there + KEY_NBYTES]
                if found in (_NO_KEY, key):
                    memory[there : there + SLOT_NBYTES] = body + _checksum(body)
                    break

    def has_room(self, key: bytes) -> bool:
        """Whether a slot is to be had for a key. Told without a look at checksums: of a torn slot of
        another key it says that it is taken."""
        slots = (bytes(self._memory[at : at + KEY_NBYTES]) for at in self._slots_of(key))
        return any(found in (key, _NO_KEY, _GONE[:KEY_NBYTES]) for found in slots)

    def entries(self) -> list[tuple[bytes, Entry]]:
        """List what is there. Reads all of it."""
        words = torch.frombuffer(self._memory, dtype=torch.int64).view(-1, SLOT_NBYTES // 8)
        taken = words[:, :2].any(1).nonzero().flatten().tolist()
        starts = (number * SLOT_NBYTES for number in taken)
        found = (read_slot(bytes(self._memory[at : at + SLOT_NBYTES])) for at in starts)
        return [each for each in found if each is not None]

    def remove(self, key: bytes) -> None:
        """Remove a key; its slot stays one that is torn, for others may lie behind it."""
        for at in self._slots_of(key):
            if bytes(self._memory[at : at + KEY_NBYTES]) == key:
                self._memory[at : at + SLOT_NBYTES] = _GONE

    def _slots_of(self, key: bytes) -> range:
        first = int.from_bytes(key[:8], "little") & self._mask & ~(_PROBES - 1)
        return range(first * SLOT_NBYTES, (first + _PROBES) * SLOT_NBYTES, SLOT_NBYTES)
