"""A job's parts come to a machine once and lie in its memory once, however many hosts and workers it has."""

import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from stoker.remote.engines.hosts import CPUS_A_HOST, num_hosts
from stoker.remote.net.link import LOST_S, Word
from tests.conftest import wait_until_gone
from tests.process.harness import started, under_stoker
from tests.process.job_data import Large
from tests.process.one_trainer import PATIENCE_S, packed
from tests.process.one_trainer import one_trainer as one_trainer_of
from tests.process.warm_hosts import RUN, WarmHosts

LARGE_NBYTES = 500_000_000
SMALL_NBYTES = 64_000_000
FEW_NBYTES = 100_000  # of words; a manifest, and an epoch's own stream, are less


@pytest.fixture(scope="module", autouse=True)
def seed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1")
        yield


@pytest.fixture(scope="module")
def warm(seed):
    made = WarmHosts()
    yield made
    made.close()


@pytest.fixture
def one_trainer(warm):
    return partial(one_trainer_of, warm=warm)


@pytest.fixture(scope="module")
def large(seed):
    return packed(Large(LARGE_NBYTES))


@pytest.fixture(scope="module")
def small(seed):
    return packed(Large(SMALL_NBYTES))


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def parts_pss_nbytes(pid):
    """Of the pages of parts, each divided by those who map it. Source: proc(5), smaps."""
    found, is_part = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_part = "stoker-parts" in line
        elif is_part and line.startswith("Pss:"):
            found += int(line.split()[1]) << 10
    return found


def anonymous_nbytes(pid):
    (line,) = (w for w in Path(f"/proc/{pid}/status").read_text().splitlines() if "RssAnon" in w)
    return int(line.split()[1]) << 10


def sent_nbytes(trainer):
    return sum(host.link.num_sent_nbytes for host in trainer.hosts)


MANY = 3 * CPUS_A_HOST  # CPUs of a machine with three hosts


@pytest.mark.full
@pytest.mark.parametrize("num_cpus", [1, MANY])
def test_a_machine_gets_a_part_once_and_its_processes_share_it(one_trainer, large, num_cpus):
    with one_trainer(1, num_cpus=num_cpus) as trainer:
        assert len(trainer.hosts) == num_hosts(num_cpus)
        before = max(anonymous_nbytes(host.pid) for host in trainer.hosts)
        trainer.announce(0, large)
        trainer.until_ready(0)
        assert sorted(trainer.asked) == sorted(large.parts)
        assert sent_nbytes(trainer) < large.nbytes + FEW_NBYTES
        for host in trainer.hosts:
            for lane in (1, 2):
                host.start(lane, 0, lane % 2)
                host.task(lane, [1, 2, 3])
        trainer.until(lambda: all(host.answers(lane) for host in trainer.hosts for lane in (1, 2)))
        followers = {host.pid for host in trainer.hosts[1:]}
        jobs = [pid for host in trainer.hosts for pid in children(host.pid) if pid not in followers]
        workers = [pid for job in jobs for pid in children(job)]
        assert (len(jobs), len(workers)) == (len(trainer.hosts), 2 * len(trainer.hosts))
        assert sum(map(parts_pss_nbytes, (*jobs, *workers))) < 1.02 * large.nbytes
        for host in trainer.hosts:
            assert anonymous_nbytes(host.pid) - before < 32 << 20
        assert all(anonymous_nbytes(pid) - before < 64 << 20 for pid in (*jobs, *workers))


@pytest.mark.parametrize("victim", ["leader", "follower"])
@pytest.mark.parametrize("has_parts", [False, True])
def test_if_one_host_of_a_machine_is_killed_none_of_it_is_left(
    one_trainer, small, victim, has_parts
):
    with one_trainer(1, num_cpus=MANY) as trainer:
        trainer.gives = lambda host, digest: has_parts
        trainer.announce(0, small)
        trainer.until(lambda: trainer.asked)
        if has_parts:
            trainer.until_ready(0)
        os.kill(trainer.hosts[victim == "follower"].pid, signal.SIGKILL)
        trainer.until(lambda: all(host.is_gone for host in trainer.hosts))
        wait_until_gone(frozenset(host.pid for host in trainer.hosts), PATIENCE_S)
        trainer.hosts[0].process.wait(PATIENCE_S)


def test_a_part_that_comes_late_comes_to_all_hosts_of_a_machine(one_trainer, small):
    """The next epoch's job, and one that another host was told of first."""
    other = packed(Large(SMALL_NBYTES), seed=2)
    with one_trainer(1, num_cpus=MANY) as trainer:
        leader, *followers = trainer.hosts
        trainer.announce(0, small, *followers)
        trainer.announce(1, other, *followers)
        trainer.announce(0, small, leader)
        trainer.until_ready(0)
        trainer.forget(0)
        trainer.announce(1, other, leader)
        trainer.until_ready(1)
        assert sorted(trainer.asked) == sorted({**small.parts, **other.parts})
        assert all(host.asked == [] for host in followers)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_a_script_with_a_large_dataset_sends_it_once_and_gets_the_same_batches(tmp_path):
    """Counted by the loopback device of a network namespace in which nothing else runs."""
    script = [sys.executable, "away_large.py"]
    enter = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    with (
        started(script, tmp_path / "plain") as plain,
        started(
            [*enter, *under_stoker("--cluster=processes:1x3"), *script], tmp_path / "ours"
        ) as ours,
    ):
        for epoch in range(2):
            assert ours.wait_for(f"epoch {epoch}") == plain.wait_for(f"epoch {epoch}")
            nbytes, num_away = map(int, ours.wait_for(f"sent {epoch}").split())
            assert num_away > 0
            batches_nbytes = 40 * (4 * 1000 * 8 + 10_000)  # and words of a few hosts
            assert nbytes < (0 if epoch else 1.02 * LARGE_NBYTES) + 2 * batches_nbytes
        assert (plain.finish().returncode, ours.finish().returncode) == (0, 0)


def test_two_machines_get_it_once_each(one_trainer, small):
    with one_trainer(0) as trainer:
        trainer.start_hosts(1, "one node")
        trainer.start_hosts(1, "another")
        trainer.announce(0, small)
        trainer.until_ready(0)
        for name in ("one node", "another"):
            asked = [d for host in trainer.hosts if host.node == name for d in host.asked]
            assert sorted(asked) == sorted(small.parts)


def test_the_next_epoch_brings_what_changed(one_trainer, small):
    """The job of the epoch before has ended by then."""
    with one_trainer(1) as trainer:
        for number in range(3):
            trainer.announce(
                number, packed(Large(SMALL_NBYTES), seed=number + 1) if number else small
            )
            trainer.until_ready(number)
            trainer.forget(number)
        assert len(trainer.asked) == len(small.parts) + 2
        assert sent_nbytes(trainer) < small.nbytes + FEW_NBYTES


KEEPS_NOTHING = f"from stoker.remote.host import part_store; part_store.KEPT_FRAC = 0; {RUN}"


@pytest.mark.full
def test_no_more_is_kept_than_a_share_of_the_memory(one_trainer, small):
    with one_trainer(0) as trainer:
        trainer.start_hosts(1, code=KEEPS_NOTHING)
        trainer.announce(0, small)
        trainer.until_ready(0)
        trainer.forget(0)
        trainer.announce(1, small)
        trainer.until_ready(1)
        assert sorted(trainer.asked) == sorted([*small.parts, *small.parts])


def test_a_part_that_two_jobs_share_comes_once(one_trainer, small):
    """Both are announced before any of it has come."""
    other = packed(Large(SMALL_NBYTES), seed=2)
    with one_trainer(1) as trainer:
        trainer.announce(0, small)
        trainer.announce(1, other)
        trainer.until_ready(0)
        trainer.until_ready(1)
        assert sorted(trainer.asked) == sorted({**small.parts, **other.parts})


def test_what_was_asked_for_too_late_is_asked_for_again_for_another_job(one_trainer, small):
    """The trainer has forgotten the job under whose name it was wanted."""
    with one_trainer(1) as trainer:
        trainer.gives = lambda host, digest: False
        trainer.announce(0, small)
        trainer.announce(1, small)
        trainer.until(lambda: len(trainer.asked) == len(small.parts))
        trainer.gives = lambda host, digest: True
        trainer.forget(0)
        trainer.until_ready(1)


@pytest.mark.full
def test_over_tls_a_large_part_keeps_nobody_from_beating(one_trainer, large):
    """TLS is slower than the trainer: its socket is never empty."""
    with one_trainer(1, is_tls=True) as trainer:
        trainer.announce(0, large)
        took_s = trainer.until_ready(0)
        assert sorted(trainer.asked) == sorted(large.parts)
        assert all(host.num_beats >= took_s / LOST_S for host in trainer.hosts)


# -- too large ---------------------------------------------------------------------------------------

HAS_LITTLE = f"from stoker.remote.host import part_store; part_store.available_nbytes = lambda: 100_000_000; {RUN}"


def test_a_job_that_does_not_fit_is_refused_before_it_travels(one_trainer, small):
    with one_trainer(0) as trainer:
        hosts = trainer.start_hosts(1, code=HAS_LITTLE, num_cpus=MANY)
        trainer.announce(0, small)
        trainer.until(lambda: all(host.words(Word.CANNOT, 0) for host in hosts))
        (why,) = {why for host in hosts for why in host.words(Word.CANNOT, 0)}
        assert b"it takes 0.1 GB there, of which 0.1 GB are free" in why
        assert b"let the dataset read its samples from files" in why
        assert trainer.asked == []
        tiny = packed(Large(1 << 16))
        trainer.announce(1, tiny)
        trainer.until_ready(1)
