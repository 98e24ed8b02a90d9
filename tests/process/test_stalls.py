"""How long a loop waits for what a fault took: two batch times, and until the fault is known.

Of portable jobs (docs/architecture.md, the ladder), whose workers on other machines are killed and
stopped at moments that a seed draws.
"""

import os
import random
import signal

import pytest

from tests.process.away import (
    AWAY,
    chains,
    children,
    hosts,
    kill,
    nothing_is_left_behind,
    plain,
    trainer,
)

__all__ = ["nothing_is_left_behind", "plain"]

NUM_BATCHES = 56
KINDS = (f"slow:{NUM_BATCHES}", f"slow-free:{NUM_BATCHES}")
BATCH_S = dict(
    zip(KINDS, (4 * 0.208, 4 * 0.232), strict=True)
)  # a worker; see scripts/away_orders.py
DEAD_KNOWN_S, STOPPED_KNOWN_S = 0.2, 3.0  # docs/guarantees.md, G3
NUM_FAULTS = 3
SEED = 7


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def busy_hosts(running):
    return [host for host in hosts(running) if any(children(job) for job in children(host))]


FAULTS = {
    "a worker is killed": (chains, kill, DEAD_KNOWN_S),
    "a host is killed": (busy_hosts, kill, DEAD_KNOWN_S),
    "a worker is stopped": (chains, stop, STOPPED_KNOWN_S),
    "a host is stopped": (busy_hosts, stop, STOPPED_KNOWN_S),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_stalls_the_loop_for_two_batches_and_until_it_is_known(
    plain, tmp_path, kind, fault
):
    victims, harm, known_s = FAULTS[fault]
    rng = random.Random(SEED)
    with trainer(tmp_path, AWAY) as one:
        one.open(kind)
        one.order(f"take {kind} 8")
        one.order(f"until_away {kind} 8")
        stalls_s: list[float] = []
        harmed: set[int] = set()
        for _ in range(NUM_FAULTS):
            one.order(f"take {kind} {rng.randint(1, 4)}")
            victim = rng.choice(sorted(set(victims(one.running)) - harmed))
            harmed.add(victim)
            harm(victim)
            stalls_s.append(float(one.order(f"longest {kind} 8")))
        *_, num_lost, _, num_hedged = one.order(f"state {kind}").split()
        assert int(num_lost) + int(num_hedged) >= 1  # of those harmed some were at work
        assert one.order(f"rest {kind}") == plain[kind]
        assert one.end().returncode == 0
    assert max(stalls_s) <= 2 * BATCH_S[kind] + known_s, stalls_s
