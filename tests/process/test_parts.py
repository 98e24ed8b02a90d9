"""A job's parts come to a machine once, lie in its memory once, and are right, whoever dies."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
from functools import partial
from pathlib import Path

import numpy
import pytest
import xxhash

from stoker.remote.host import node
from stoker.remote.host.node import SILENT_S, Needs, Node
from stoker.remote.host.parts import Coming
from stoker.remote.net.link import LOST_S, Word
from stoker.remote.net.ship import Manifest, Part
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


@pytest.mark.full
def test_a_machine_gets_a_part_once_and_holds_it_once(one_trainer, large):
    with one_trainer(3) as trainer:
        before = {host.pid: anonymous_nbytes(host.pid) for host in trainer.hosts}
        trainer.announce(0, large)
        trainer.until_ready(0)
        assert sorted(trainer.asked) == sorted(large.parts)
        assert sent_nbytes(trainer) < large.nbytes + FEW_NBYTES
        jobs = [job for host in trainer.hosts for job in children(host.pid)]
        assert len(jobs) == 3
        assert sum(map(parts_pss_nbytes, jobs)) < 1.02 * large.nbytes
        for host in trainer.hosts:
            assert anonymous_nbytes(host.pid) - before[host.pid] < 32 << 20
            (job,) = children(host.pid)
            assert anonymous_nbytes(job) - before[host.pid] < 64 << 20


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root")
def test_a_script_with_a_large_dataset_sends_it_once_and_gets_the_same_batches(tmp_path):
    """Counted by the loopback device of a network namespace in which nothing else runs."""
    script = [sys.executable, "away_large.py"]
    enter = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    with (
        started(script, tmp_path / "plain") as plain,
        started(
            [*enter, *under_stoker("--cluster=processes:3"), *script], tmp_path / "ours"
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
        trainer.start_hosts(2, "one node")
        trainer.start_hosts(2, "another")
        trainer.announce(0, small)
        trainer.until_ready(0)
        for name in ("one node", "another"):
            asked = [d for host in trainer.hosts if host.node == name for d in host.asked]
            assert sorted(asked) == sorted(small.parts)


def test_the_next_epoch_brings_what_changed(one_trainer, small):
    """The job of the epoch before has ended by then."""
    with one_trainer(2) as trainer:
        for number in range(3):
            trainer.announce(
                number, packed(Large(SMALL_NBYTES), seed=number + 1) if number else small
            )
            trainer.until_ready(number)
            trainer.forget(number)
        assert len(trainer.asked) == len(small.parts) + 2
        assert sent_nbytes(trainer) < small.nbytes + FEW_NBYTES


KEEPS_NOTHING = f"from stoker.remote.host import node; node.KEPT_FRAC = 0; {RUN}"


@pytest.mark.full
def test_no_more_is_kept_than_a_share_of_the_memory(one_trainer, small):
    with one_trainer(0) as trainer:
        trainer.start_hosts(2, code=KEEPS_NOTHING)
        trainer.announce(0, small)
        trainer.until_ready(0)
        trainer.forget(0)
        trainer.announce(1, small)
        trainer.until_ready(1)
        assert sorted(trainer.asked) == sorted([*small.parts, *small.parts])


def test_a_part_that_two_jobs_share_comes_once(one_trainer, small):
    """Both are announced before any of it has come."""
    other = packed(Large(SMALL_NBYTES), seed=2)
    with one_trainer(2) as trainer:
        trainer.announce(0, small)
        trainer.announce(1, other)
        trainer.until_ready(0)
        trainer.until_ready(1)
        assert sorted(trainer.asked) == sorted({**small.parts, **other.parts})


def test_what_was_asked_for_too_late_is_asked_for_again_for_another_job(one_trainer, small):
    """The trainer has forgotten the job under whose name it was wanted."""
    with one_trainer(2) as trainer:
        trainer.gives = lambda host, digest: False
        trainer.announce(0, small)
        trainer.announce(1, small)
        trainer.until(lambda: len(trainer.asked) == len(small.parts))
        trainer.gives = lambda host, digest: True
        trainer.forget(0)
        trainer.until_ready(1)


@pytest.mark.full
@pytest.mark.parametrize("frac", [0.0, 0.03, 0.5, 0.97, 1.0])
def test_a_keeper_killed_while_it_receives_is_replaced(one_trainer, large, frac):
    """frac: of the bytes that it was sent."""
    with one_trainer(3) as trainer:
        trainer.gives = lambda host, digest: False
        trainer.announce(0, large)
        trainer.until(lambda: trainer.asked)
        (keeper,) = (host for host in trainer.hosts if host.asked)
        others = [host for host in trainer.hosts if host is not keeper]
        trainer.gives = lambda host, digest: True
        if frac:
            for digest in keeper.asked:
                trainer.give(keeper, digest)
        while keeper.link.num_sent_nbytes < frac * large.nbytes:
            trainer.turn()
        os.kill(keeper.pid, signal.SIGKILL)
        took_s = trainer.until_ready(0, *others)
        assert took_s < SILENT_S + PATIENCE_S / 4, "it is known at once that it died"
        asked = [digest for host in others for digest in host.asked]
        assert sorted(asked) in (sorted(large.parts), []), "of those that are left one asks"
        assert asked or frac == 1.0
        keeper.process.wait()


@pytest.mark.few(1)
@pytest.mark.parametrize("num_stopped", [1, 2])
def test_a_keeper_stopped_while_it_receives_is_not_waited_for(one_trainer, small, num_stopped):
    """And the one after it."""
    with one_trainer(4) as trainer:
        others, stopped = list(trainer.hosts), []
        trainer.gives = lambda host, digest: False
        trainer.announce(0, small)
        for _ in range(num_stopped):
            trainer.until(lambda: any(host.asked for host in others))
            (keeper,) = (host for host in others if host.asked)
            others.remove(keeper)
            stopped.append(keeper)
            for digest in keeper.asked[:1]:
                trainer.give(keeper, digest)
            os.kill(keeper.pid, signal.SIGSTOP)
        trainer.gives = lambda host, digest: host in others
        took_s = trainer.until_ready(0, *others)
        assert took_s < SILENT_S + PATIENCE_S / 4
        asked = [digest for host in others for digest in host.asked]
        assert sorted(asked) == sorted(small.parts)
        for keeper in stopped:
            trainer.lose(keeper)
            os.kill(keeper.pid, signal.SIGCONT)
            keeper.process.wait(PATIENCE_S)


def test_what_the_others_hold_outlives_the_keeper(one_trainer, small):
    """Who comes later gets it from one that followed; and the job of the dead keeper's is gone."""
    with one_trainer(2) as trainer:
        trainer.announce(0, small)
        trainer.until_ready(0)
        (keeper,) = (host for host in trainer.hosts if host.asked)
        os.kill(keeper.pid, signal.SIGKILL)
        trainer.until(lambda: keeper.is_gone)
        (new,) = trainer.start_hosts(1)
        trainer.until_ready(0, new)
        assert new.asked == [] and len(trainer.asked) == len(small.parts)
        keeper.process.wait()


@pytest.mark.full
def test_over_tls_a_large_part_keeps_nobody_from_beating(one_trainer, large):
    """TLS is slower than the trainer: its socket is never empty."""
    with one_trainer(2, is_tls=True) as trainer:
        trainer.announce(0, large)
        took_s = trainer.until_ready(0)
        assert sorted(trainer.asked) == sorted(large.parts)
        assert all(host.num_beats >= took_s / LOST_S for host in trainer.hosts)


# -- too large ---------------------------------------------------------------------------------------

HAS_LITTLE = (
    f"from stoker.remote.host import node; node.available_nbytes = lambda: 100_000_000; {RUN}"
)


def test_a_job_that_does_not_fit_is_refused_before_it_travels(one_trainer, small):
    with one_trainer(0) as trainer:
        hosts = trainer.start_hosts(3, code=HAS_LITTLE)
        trainer.announce(0, small)
        trainer.until(lambda: all(host.words(Word.CANNOT, 0) for host in hosts))
        (why,) = {why for host in hosts for why in host.words(Word.CANNOT, 0)}
        assert b"it takes 0.1 GB there, of which 0.1 GB are free" in why
        assert b"let the dataset read its samples from files" in why
        assert trainer.asked == []
        tiny = packed(Large(1 << 16))
        trainer.announce(1, tiny)
        trainer.until_ready(1)


# -- strangers at the keeper's name ------------------------------------------------------------------


class Stranger:
    """Binds the name before any host does: it holds the token, or it could not know the name.
    Whoever wants something of it gets `reply`, once."""

    def __init__(self, trainer, reply):
        self.sock = Node(trainer.token, "a node", Needs(*[lambda *args: None] * 5))._listening
        self.reply, self.num_replies = reply, 0
        self.followers = []
        trainer.at_each_turn = self.serve
        trainer.start_hosts(2)

    def serve(self):
        with contextlib.suppress(BlockingIOError):
            if self.sock.fileno() >= 0:
                follower, _ = self.sock.accept()
                follower.setblocking(False)
                self.followers.append(follower)
        for follower in self.followers:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if follower.fileno() >= 0 and follower.recv(1000):
                    self.reply(follower)
                    self.num_replies += 1

    def close(self):
        for sock in (*self.followers, self.sock):
            sock.close()


def unsealed(follower):
    fd = os.memfd_create("unsealed")
    os.ftruncate(fd, 1 << 20)
    socket.send_fds(follower, [b'{"job": 0, "is_last": true}'], [fd])
    os.close(fd)


def a_bundle_of_nothing_that_is_wanted(follower):
    coming = Coming(0, [Part("another", 10)])
    coming.took("another")
    bundle = coming.seal()
    socket.send_fds(follower, [b'{"job": 0, "is_last": true}'], [bundle.fd])
    bundle.close()


REPLIES = {
    "no message": lambda follower: follower.send(b"\xff\xff"),
    "a list": lambda follower: follower.send(b"[1]"),
    "words that are not known": lambda follower: follower.send(b'{"job": 0}'),
    "an end": lambda follower: follower.close(),
    "an unsealed file": unsealed,
    "another bundle": a_bundle_of_nothing_that_is_wanted,
    "silence": lambda follower: None,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("reply", REPLIES)
def test_whatever_the_keeper_says_the_job_is_ready_and_right(one_trainer, small, reply):
    with one_trainer(0) as trainer:
        trainer.jobs[0] = small  # announced as soon as they come
        stranger = Stranger(trainer, REPLIES[reply])
        trainer.until_ready(0)
        assert sorted(trainer.asked) == sorted(small.parts)
        assert stranger.num_replies > 0
        stranger.close()


def test_bytes_that_are_not_the_parts_are_not_used(one_trainer, small):
    """A sealed bundle that claims their digests."""
    parts = Manifest.from_json(small.manifest).parts
    coming = Coming(0, list({part.digest: part for part in parts}.values()))
    for part in parts:
        coming.took(part.digest)  # all zeros
    bundle = coming.seal()

    def give(follower):
        socket.send_fds(follower, [b'{"job": 0, "is_last": true}'], [bundle.fd])

    with one_trainer(0) as trainer:
        trainer.jobs[0] = small
        stranger = Stranger(trainer, give)
        trainer.until(lambda: all(host.words(Word.CANNOT, 0) for host in trainer.hosts))
        for host in trainer.hosts:
            assert b"is not what was sent" in host.words(Word.CANNOT, 0)[0]
            assert host.words(Word.READY, 0) == []
        stranger.close()
    bundle.close()


# -- bundles -----------------------------------------------------------------------------------------


def bundle_of(*parts):
    coming = Coming(0, [Part(xxhash.xxh3_128_hexdigest(part), len(part)) for part in parts])
    for part in parts:
        digest = xxhash.xxh3_128_hexdigest(part)
        coming.room(digest, len(part))[:] = part
        coming.took(digest)
    assert coming.is_whole
    return coming.seal()


def test_a_part_is_written_to_by_one_process_alone_and_never_in_the_bundle():
    parts = [b"a" * 5000, b"bc", b"d" * 4096]
    bundle = bundle_of(*parts)
    for part in parts:
        digest = xxhash.xxh3_128_hexdigest(part)
        first, second = bundle.map(digest), bundle.map(digest)
        assert bytes(first) == bytes(second) == part
        numpy.frombuffer(first, numpy.uint8)[0] = 7
        assert bytes(second) == bytes(bundle.map(digest)) == part
    with pytest.raises(OSError) as caught:
        os.pwrite(bundle.fd, b"x", 0)
    assert caught.value.errno == errno.EPERM
    bundle.close()


def test_a_process_that_is_forked_while_a_bundle_comes_does_not_keep_it_from_being_sealed():
    coming = Coming(0, [Part("a", 1 << 20)])
    coming.room("a", 1 << 20)[:] = b"x" * (1 << 20)
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read_fd, 1)
        os._exit(0)
    coming.took("a")
    bundle = coming.seal()
    assert "a" in bundle
    os.write(write_fd, b"x")
    os.waitpid(pid, 0)
    for fd in (read_fd, write_fd):
        os.close(fd)
    bundle.close()


def test_another_users_process_is_not_followed(monkeypatch):
    watched = []
    needs = Needs(lambda fd, handler: watched.append(fd), *[lambda *args: None] * 4)
    keeper = Node(b"t" * 32, "here", needs)
    monkeypatch.setattr(node.os, "getuid", lambda: 12345)
    follower = Node(b"t" * 32, "here", needs)
    assert follower._keeper is None and follower._is_seeking
    keeper._accept()
    assert keeper._followers == {}
    keeper._listening.close()
