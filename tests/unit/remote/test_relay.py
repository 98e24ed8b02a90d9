"""One chain's frames from the worker's arena to the trainer's, over a real connection."""

import gc
import pickle
import socket

import numpy as np
import pytest
import torch

from stoker.remote.net.link import Garbled, Link, Message, Word
from stoker.remote.net.relay import HostRelay, TrainerRelay
from stoker.reports.digest import batch_sha256
from stoker.wire.arena.arena import Arena
from stoker.wire.arena.heap import Heap, Room
from stoker.wire.arena.lender import Lender
from stoker.wire.batch_codec import decode, encode
from stoker.wire.channel import Channel
from stoker.wire.frame import INLINE, Kind, pack
from stoker.wire.lossless import Encoder
from stoker.wire.sections import (
    Section,
    pack_offsets,
    pack_section,
    pack_shapes,
    pack_taken,
    unpack_offsets,
    unpack_sections,
    unpack_wire,
)

ARENA_NBYTES = 64 << 20


class Thin(Link):
    """A link that is known to be thin, so that whatever gains is coded."""

    def nbytes_per_s(self):
        return 1e7


class Way:
    """Worker -> HostRelay -> Link -> TrainerRelay -> trainer, all driven from here."""

    def __init__(self, encoder=None):
        pairs = [socket.socketpair() for _ in range(3)]
        self.sockets = [sock for pair in pairs for sock in pair]
        (worker, host_relay), (here, there), (trainer_relay, trainer) = pairs
        self.worker, self.trainer = Channel(worker), Channel(trainer)
        self.there, self.here = Thin(there), Thin(here)
        self.worker_arena, self.trainer_arena = Arena(ARENA_NBYTES), Arena(ARENA_NBYTES)
        self.heap, self.lender = Heap(Room(self.worker_arena)), Lender(self.trainer_arena)
        self.host_relay = HostRelay(7, Channel(host_relay), self.worker_arena, self.there, encoder)
        self.trainer_relay = TrainerRelay(7, Channel(trainer_relay), self.trainer_arena, self.here)
        self.here.room = self.trainer_relay.room
        self.begin()

    def begin(self, lent=()):
        begin = pack_section(Section.START, pickle.dumps((None, False)))
        extra = begin + pack_taken(list(lent))
        self.trainer.send(pack(Kind.BEGIN, extra_nbytes=len(extra)), extra)
        return self.wait_at_worker()

    def wait_at_worker(self):
        frame = None
        while frame is None:
            self.trainer_relay.pump()
            self.here.flush()
            while (message := self.there.receive_nowait()) is not None:
                self.host_relay.deliver(message)
            frame = self.worker.receive_nowait()
        return frame

    def send(self, batch, extra=b"", tells_shapes=True):
        encoded = encode(batch, self.heap)
        if tells_shapes:
            extra += pack_shapes(encoded.shapes())
        head = pack(
            Kind.BATCH,
            task_id=5,
            chain=1,
            places=(encoded.table, encoded.num_storages, encoded.num_buffers),
            stream_nbytes=encoded.stream_nbytes,
            blob_nbytes=encoded.blob_nbytes,
            blob_offset=encoded.blob_offset,
            extra_nbytes=len(extra),
        )
        self.worker.send(head, *encoded.inline_parts(), extra)

    def wait_frame(self):
        frame = None
        while frame is None:
            self.worker.flush()
            self.host_relay.pump()
            self.there.flush()
            while (message := self.here.receive_nowait()) is not None:
                self.trainer_relay.deliver(message)
            self.trainer_relay.channel.flush()
            frame = self.trainer.receive_nowait()
        return frame

    def wait_batch(self):
        frame = self.wait_frame()
        header = frame.header
        table = frame.payload[: header.table_nbytes()]
        blob = frame.payload[len(table) :]
        if header.blob_offset != INLINE:
            blob = self.lender.lend(header.blob_offset, header.blob_nbytes)
        args = table, header.num_storages, header.stream_nbytes, blob, self.lender
        sections = unpack_sections(frame.extra)
        self.wire_nbytes = unpack_wire(sections.pop(Section.WIRE))
        return header, decode(*args), {name: bytes(data) for name, data in sections.items()}

    def close(self):
        for end in (self.worker, self.trainer, self.host_relay.channel, self.trainer_relay.channel):
            end.close()
        self.there.close()
        self.here.close()


@pytest.fixture(params=[None, Encoder], ids=["raw", "coded"])
def way(request):
    made = Way(request.param and request.param())
    yield made
    made.close()


def normalised(batch_size=4):
    images = torch.randint(0, 256, (batch_size, 3, 224, 224), generator=torch.manual_seed(1))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (images / 255 - mean[:, None, None]) / std[:, None, None]


shared = torch.arange(50_000.0)
BATCHES = {
    "images and labels": lambda: [normalised(), torch.arange(4)],
    "channels last": lambda: normalised().to(memory_format=torch.channels_last),
    "a view of a larger storage": lambda: torch.arange(100_000.0)[500:60_000:2],
    "two views of one storage": lambda: {"a": shared[:40_000], "b": shared[10_000:]},
    "noise": lambda: torch.randn(40_000, generator=torch.manual_seed(3)),
    "bits that are no number": lambda: torch.full((30_000,), float("nan")),
    "minus zero": lambda: -torch.zeros(30_000),
    "bfloat16": lambda: torch.arange(200.0).repeat(1000).to(torch.bfloat16),
    "masks": lambda: torch.arange(300_000) % 7 == 0,
    "token ids": lambda: torch.arange(100_000) % 5000,
    "NumPy": lambda: np.arange(100_000, dtype=np.float32),
    "complex": lambda: torch.ones(40_000, dtype=torch.complex64),
    "a long string": lambda: "x" * 300_000,
    "a long string, and large tensors": lambda: ["y" * 300_000, torch.ones(90_000), normalised(1)],
    "nothing large": lambda: {"a": torch.arange(9), "b": "text"},
    "nothing": list,
}


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("tells_shapes", [True, False])
def test_what_arrives_is_what_was_sent_to_the_bit(way, make, tells_shapes):
    for _ in range(3):
        batch = make()
        way.send(batch, pack_section(Section.POINT, b"a point"), tells_shapes)
        header, arrived, extra = way.wait_batch()
        assert batch_sha256(arrived) == batch_sha256(batch)
        assert (header.task_id, header.chain) == (5, 1)
        assert 0 < way.wire_nbytes <= way.there.num_sent_nbytes
        assert extra == {Section.POINT: b"a point"}


def test_tensors_that_share_a_storage_still_do(way):
    way.send(BATCHES["two views of one storage"]())
    _, arrived, _ = way.wait_batch()
    arrived["a"][20_000] = -1.0
    assert arrived["b"][10_000] == -1.0


def test_normalised_images_take_a_quarter_of_the_bytes():
    raw, coded = Way(), Way(Encoder())
    for way in (raw, coded):
        for _ in range(4):
            way.send([normalised(16), torch.arange(16)])
            way.wait_batch()
    assert raw.there.num_sent_nbytes > 3.95 * coded.there.num_sent_nbytes
    raw.close()
    coded.close()


@pytest.mark.full
def test_the_worker_gets_its_memory_back_when_a_part_was_sent(way):
    for _ in range(40):  # 96 MB through 64 MB
        way.send(normalised(4))
        del_me = way.wait_batch()
        del del_me
        gc.collect()
        frame = way.worker.receive_nowait()
        assert frame is not None and frame.header.kind == Kind.RETURNED
        for offset in unpack_offsets(unpack_sections(frame.extra)[Section.RETURNED]):
            way.heap.drop(offset)
        extra = pack_offsets(Section.RETURNED, way.lender.take_returned())
        way.trainer.send(pack(Kind.RETURNED, extra_nbytes=len(extra)), extra)
        way.trainer_relay.pump()
    assert way.lender.lent_nbytes == 0


def test_a_second_worker_of_the_arena_writes_nowhere_where_the_trainer_still_looks(way):
    way.send(torch.full((50_000,), 3.0))
    _, kept, _ = way.wait_batch()
    way.begin(way.lender.lent())
    way.send(torch.full((50_000,), 4.0))
    _, other, _ = way.wait_batch()
    assert kept[0] == kept[-1] == 3.0 and other[0] == other[-1] == 4.0


@pytest.mark.parametrize("head", [b"", b"\xff\xff\xff\xff", b"\x01\0\0\0" + b"\x09" * 21])
def test_a_head_that_cannot_be_is_refused(way, head):
    with pytest.raises(Garbled):
        message = Message(Word.FRAME, 7, memoryview(head), 0)
        way.trainer_relay.room(message)
        way.trainer_relay.deliver(message)
