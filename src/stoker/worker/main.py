"""Turns a forked process into a worker as torch knows it, and runs it until the trainer ends it.

Promise: what dataset code can ask of its process (name, daemon, stdin, threads, signal handlers,
parent) is answered as in a worker that torch started.
Source: torch/utils/data/_utils/worker.py `_worker_loop`, 2.13.
"""

import os
import socket
import sys
import traceback

import torch
from torch.utils.data import _utils

import stoker.worker
from stoker.fast.place import FastFunctions
from stoker.fast.tables import Tables
from stoker.images.hooks import FastImages
from stoker.memory.decoders.decoders import Decoders
from stoker.memory.stand_in import Memory
from stoker.memory.store import ShelfAccess
from stoker.scheduler.tasks.slot import Slot
from stoker.stalls import stacks
from stoker.wire.arena import Room
from stoker.wire.channel import Channel
from stoker.wire.marks import Marks
from stoker.worker.collate import stack_faster
from stoker.worker.early import Early
from stoker.worker.job import Job, note_surroundings
from stoker.worker.loop import Worker
from stoker.worker.patches import allocate_batches_in_arena, tune_allocator

FAILED = os.EX_SOFTWARE  # what a worker exits with where stoker failed in it


def main(
    job: Job,
    slot: Slot,
    sock: socket.socket,
    room: Room | None,
    mark: tuple[Marks, int] | None = None,
    shelf: ShelfAccess | None = None,
) -> None:
    """Run as a worker until the trainer closes its end of `sock`. Runs user code.

    mark: where to note the task being made, and the slot's index there; shelf: where samples are
    kept that were made before, None: nowhere.
    """
    stoker.worker.is_here = True
    try:
        sock.set_inheritable(False)  # one that came with spawn is
        os.register_at_fork(after_in_child=sock.close)  # a fork of the dataset's is not a worker
        _utils.signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]
        torch.multiprocessing._set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        tune_allocator()
        stacks.allow()
        if job.num_chains:  # else it is compared with the training process itself
            note_surroundings()
        worker = (job.make_worker or Worker)(job, slot.chain, Channel(sock), room)
        if mark is not None:
            marks, place = mark
            worker.mark = marks.writer(place)
        early = memory = None
        fast: list[FastFunctions] = []
        if job.num_chains:  # else it is to be as the training process is
            allocate_batches_in_arena(worker)
            early = Early()
            if job.fast is not None:
                fast = [FastImages(early.room_for_sample, job.fast), Tables(job.fast)]
        if shelf is not None:
            memory = Memory(
                shelf,
                is_only_worker=job.num_chains <= 1,
                decoding=Decoders if job.num_chains else None,
            )
        worker.set_up(early if early and stack_faster(early.batch_of) else None, memory, fast)
        worker.run()
        if memory is not None:
            memory.close()
    except KeyboardInterrupt:
        pass  # the trainer raises it too
    except Exception:  # ours: the dataset's are sent
        traceback.print_exc()
        sys.exit(FAILED)
