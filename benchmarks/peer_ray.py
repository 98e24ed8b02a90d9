"""The other side of `ingest_beside.py --peer ray`: Ray's streaming generator between two nodes.

Two raylets on this machine, each as another machine would be: an actor on the second yields one array
of BATCH_NBYTES again and again (num_returns="streaming"), the driver on the first gets each. For every
line "SETTING SECONDS" on stdin it prints the GB/s; SETTING is how many objects may wait unconsumed.
Ban: knows nothing of stoker.
"""

import sys
import time

import numpy as np
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

BATCH_NBYTES = 10_000_000 // 4096 * 4096
GB = 1e9
STORE_NBYTES = 1 << 30  # of each node: a hundred batches


@ray.remote(num_cpus=1)
class Source:
    def __init__(self) -> None:
        self.batch = np.random.default_rng(0).random(BATCH_NBYTES // 4, dtype=np.float32)

    def batches(self):
        while True:
            yield self.batch


class Stream:
    """A generator under way. max_waiting: 0 is Ray's default, no limit but the store's."""

    def __init__(self, node: str, max_waiting: int) -> None:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        self.source = Source.options(scheduling_strategy=here).remote()
        limit = {"_generator_backpressure_num_objects": max_waiting} if max_waiting else {}
        self.refs = self.source.batches.options(num_returns="streaming", **limit).remote()

    def measure(self, seconds: float) -> float:
        start_s, num = time.perf_counter(), 0
        while time.perf_counter() - start_s < seconds:
            batch = ray.get(next(self.refs))
            num += 1
        assert batch.nbytes == BATCH_NBYTES
        return num * BATCH_NBYTES / GB / (time.perf_counter() - start_s)

    def close(self) -> None:
        ray.kill(self.source)


def main() -> None:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": STORE_NBYTES},
    )
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE_NBYTES)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    stream, setting = None, None
    print("ready", flush=True)
    for line in sys.stdin:
        wanted, seconds = line.split()
        if wanted != setting:
            if stream is not None:
                stream.close()
            stream, setting = Stream(node.node_id, int(wanted)), wanted
        print(stream.measure(float(seconds)), flush=True)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
