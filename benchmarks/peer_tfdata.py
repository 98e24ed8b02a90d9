"""The other side of `ingest_beside.py --peer tf.data`: TensorFlow's tf.data service.

Run by a Python that has tensorflow. A dispatcher and a worker in a process of their own serve one
tensor of BATCH_NBYTES again and again, not compressed; this process takes them. For every line
"SETTING SECONDS" on stdin it prints the GB/s; SETTING is max_outstanding_requests, 0 for its default.
Ban: knows nothing of stoker.
"""

import multiprocessing
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

BATCH_NBYTES = 10_000_000 // 4096 * 4096
GB = 1e9
service = tf.data.experimental.service


def serve(told) -> None:
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
    address = dispatcher.target.partition("://")[2]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address, port=0))
    told.send(dispatcher.target)
    told.recv()  # the other process has ended
    del worker


def taker(target: str, max_outstanding: int):
    """An iterator of batches that come from the worker."""
    batch = tf.random.uniform([BATCH_NBYTES // 4])
    distributed = service.distribute(
        processing_mode=service.ShardingPolicy.OFF,
        service=target,
        compression=None,
        max_outstanding_requests=max_outstanding or None,
    )
    return iter(tf.data.Dataset.from_tensors(batch).repeat().apply(distributed).prefetch(2))


def measure(batches, seconds: float) -> float:
    start_s, num = time.perf_counter(), 0
    while time.perf_counter() - start_s < seconds:
        batch = next(batches)
        num += 1
    assert batch.shape[0] * 4 == BATCH_NBYTES
    return num * BATCH_NBYTES / GB / (time.perf_counter() - start_s)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    target = ours.recv()
    batches, setting = None, None
    print("ready", flush=True)
    for line in sys.stdin:
        wanted, seconds = line.split()
        if wanted != setting:
            batches = None  # ends the last one's job
            batches, setting = taker(target, int(wanted)), wanted
        print(measure(batches, float(seconds)), flush=True)
    process.kill()


if __name__ == "__main__":
    main()
