"""What every Cluster promises (local/cluster.py), on real processes."""

import multiprocessing
import os
import select
import signal
import subprocess
import sys
from functools import partial

import pytest

from stoker.clock import Deadline
from stoker.loaders.driver.memory import Memory
from stoker.loaders.driver.workers import Workers
from stoker.local.started import Started
from stoker.local.template import Template, reap, wait_all_gone
from tests import methods
from tests.slots import C

PATIENCE_S = 10.0  # nothing here takes as long


def soon():
    return Deadline(PATIENCE_S)


def obey(slot, sock):
    """A worker that does what its socket says, and ends with it."""
    sock.settimeout(None)
    while word := sock.recv(64):
        if word == b"who":
            sock.sendall(f"{slot.number} {os.getpid()}".encode())
        elif word == b"exit":
            sys.exit(7)
        elif word == b"os._exit":
            os._exit(9)
        elif word == b"raise":
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  # its traceback
            raise RuntimeError
        elif word == b"deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sock.sendall(b"deaf")
            while True:
                signal.pause()


def tell(word, slot, sock):
    """A worker that sends a word, and ends."""
    sock.sendall(word[0])


def local(body=obey, num_first=2):
    context = multiprocessing.get_context("fork")
    processes = [context.Process() for _ in range(max(1, num_first))]
    return Template(processes, body, C[:num_first])


def started(body=obey, num_first=2):
    context = multiprocessing.get_context("forkserver")
    processes = [context.Process(daemon=True) for _ in range(max(1, num_first))]
    return Started(context, processes, body, C[:num_first])


class Mixed(Workers):
    """The workers of odd slots are elsewhere."""

    def start(self, slot, after_s=0.0, away=False):
        return super().start(slot, after_s, away=bool(slot.number % 2))

    def close(self, grace_s):
        super().close(grace_s)
        self._memory.abandon()


def mixed(body=obey, num_first=2):
    return Mixed(local(body, 1), Memory(C[:8], 1 << 16, can_travel=False), local(body, 0))


@pytest.fixture(scope="module", autouse=True)
def server():
    """The process that forkserver forks workers from, with torch imported: they start at once."""
    with methods.helpers(__name__):
        yield


@pytest.fixture(params=[local, started, mixed])
def make(request):
    if request.param is mixed and request.node.get_closest_marker("template"):
        pytest.skip("of templates only")
    made = []

    def start(*args, **kwargs):
        made.append(request.param(*args, **kwargs))
        made[-1].start_rest()
        return made[-1]

    yield start
    for cluster in made:
        cluster.close(0.0)
    wait_all_gone(soon())


@pytest.fixture
def cluster(make):
    return make()


@pytest.fixture
def joined(cluster):
    """The cluster and its two workers' sockets."""
    socks = [cluster.start(C[slot]) for slot in range(2)]
    for sock in socks:
        sock.settimeout(PATIENCE_S)
    yield cluster, socks
    for sock in socks:
        sock.close()


def ask(sock, word):
    sock.settimeout(PATIENCE_S)
    sock.sendall(word)
    return sock.recv(64)


def ended(sock):
    """Whether the other end closes in time."""
    sock.settimeout(PATIENCE_S)
    try:
        return sock.recv(64) == b""
    except ConnectionResetError:
        return True


def wait_dead(pid):
    """Whether a process, ours or not, ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    is_dead = bool(poll.poll(PATIENCE_S * 1000))
    os.close(fd)
    return is_dead


def test_a_worker_that_has_ended_is_told_once_and_is_news(joined):
    cluster, socks = joined
    ask(socks[1], b"who")
    assert cluster.news_fds() and cluster.take_ended() == set()
    news = select.poll()
    for fd in cluster.news_fds():
        news.register(fd, select.POLLIN)
    ask(socks[1], b"exit")
    told = set()
    while not told:  # that it has started is news too
        assert news.poll(PATIENCE_S * 1000)
        cluster.hear()
        told = cluster.take_ended()
    assert told == {C[1]} and cluster.take_ended() == set()
    assert not cluster.is_gone


def test_what_is_news_of_a_slot_is_its_own_clusters():
    cluster = mixed()
    with cluster.start(C[0]), cluster.start(C[1]):
        here, there = cluster.news_fds_of(C[0]), cluster.news_fds_of(C[1])
        assert here and there and not here & there
        assert here | there == cluster.news_fds()
    cluster.close(0.0)
    wait_all_gone(soon())


def test_each_slots_worker_is_a_process_of_its_own(joined):
    cluster, socks = joined
    told = [ask(sock, b"who").split() for sock in socks]
    pids = [cluster.wait_pid(C[slot], soon()) for slot in range(2)]
    assert [(int(slot), int(pid)) for slot, pid in told] == list(enumerate(pids))
    assert len({os.getpid(), *pids}) == 3
    assert getattr(cluster, "pid", None) not in (os.getpid(), *pids)  # a template's own


@pytest.mark.parametrize(
    ("word", "code"),
    [(b"exit", 7), (b"os._exit", 9), (b"raise", 1)],
    ids=["exit", "_exit", "raise"],
)
def test_a_worker_that_ends_by_itself_is_told_with_its_code(joined, word, code):
    cluster, socks = joined
    pid = int(ask(socks[1], b"who").split()[1])
    assert ask(socks[1], word) == b""
    how = cluster.wait_exit(C[1], soon())
    assert (how.slot, how.pid, how.code) == (C[1], pid, code)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_a_killed_worker_is_told_with_its_signal(joined, signum):
    cluster, socks = joined
    ask(socks[0], b"who")
    cluster.signal(C[0], signum)
    assert cluster.wait_exit(C[0], soon()).code == -signum
    assert ended(socks[0])


def test_a_worker_killed_from_outside_is_told_as_well(joined):
    cluster, socks = joined
    os.kill(int(ask(socks[0], b"who").split()[1]), signal.SIGKILL)
    assert cluster.wait_exit(C[0], soon()).code == -signal.SIGKILL


def test_a_worker_ends_with_its_socket(joined):
    cluster, socks = joined
    socks[0].close()
    assert cluster.wait_exit(C[0], soon()).code == 0
    assert ask(socks[1], b"who").startswith(b"1 "), "the other one lives on"


def test_a_living_worker_has_no_exit(joined):
    cluster, socks = joined
    ask(socks[0], b"who")
    assert cluster.wait_exit(C[0], Deadline(0)) is None


def test_an_exit_may_be_asked_for_again(joined):
    cluster, socks = joined
    ask(socks[0], b"exit")
    assert cluster.wait_exit(C[0], soon()) == cluster.wait_exit(C[0], Deadline(0)) != None  # noqa: E711


def test_a_slot_never_started_has_no_pid(cluster):
    assert cluster.wait_pid(C[5], Deadline(0)) is None


def test_a_signal_to_a_worker_that_ended_is_nothing(joined):
    cluster, socks = joined
    ask(socks[0], b"exit")
    cluster.wait_exit(C[0], soon())
    cluster.signal(C[0], signal.SIGKILL)
    assert ask(socks[1], b"who").startswith(b"1 ")


def test_a_slot_can_be_started_again_and_tells_only_of_its_latest_worker(joined):
    cluster, socks = joined
    old = int(ask(socks[0], b"who").split()[1])
    ask(socks[0], b"exit")
    assert cluster.wait_exit(C[0], soon()).pid == old
    with cluster.start(C[0]) as again:
        new = cluster.wait_pid(C[0], soon())
        assert ask(again, b"who") == f"0 {new}".encode() and new != old
        assert cluster.wait_exit(C[0], Deadline(0)) is None
        ask(again, b"os._exit")
        assert cluster.wait_exit(C[0], soon()).code == 9


def test_a_slot_beyond_the_first_ones_can_be_started_later(joined):
    cluster, _ = joined
    with cluster.start(C[6]) as sock:
        assert ask(sock, b"who") == f"6 {cluster.wait_pid(C[6], soon())}".encode()


@pytest.mark.template
def test_a_replacement_starts_from_memory_as_it_was_at_iter(make):
    word = [b"then"]
    cluster = make(partial(tell, word), 1)
    word[0] = b"now"
    for _ in range(2):
        with cluster.start(C[0]) as sock:
            sock.settimeout(PATIENCE_S)
            assert sock.recv(64) == b"then"
        assert cluster.wait_exit(C[0], soon()).code == 0


def test_workers_hold_no_fd_of_each_other(joined):
    _, socks = joined
    ask(socks[1], b"who")
    os.kill(int(ask(socks[0], b"who").split()[1]), signal.SIGKILL)
    assert ended(socks[0]), "or a death would not show while another worker lives"


def test_closing_ends_every_worker_and_may_be_done_again(joined):
    cluster, socks = joined
    pids = [int(ask(sock, b"who").split()[1]) for sock in socks]
    cluster.close(0.0)
    cluster.close(0.0)
    wait_all_gone(soon())
    assert cluster.is_gone
    assert all(wait_dead(pid) for pid in (*pids, getattr(cluster, "pid", pids[0])))
    cluster.close(0.0)


def test_closing_ends_a_worker_that_does_not_listen(joined):
    cluster, socks = joined
    pid = int(ask(socks[0], b"who").split()[1])
    assert ask(socks[0], b"deaf") == b"deaf"
    cluster.close(0.0)
    wait_all_gone(soon())
    assert wait_dead(pid)


def test_closing_before_anybody_joined_leaves_nothing(make):
    make().close(0.0)
    wait_all_gone(soon())
    reap()


def test_a_worker_given_time_ends_by_itself(joined):
    cluster, socks = joined
    pids = [cluster.wait_pid(C[slot], soon()) for slot in range(2)]
    for sock in socks:
        sock.close()
    cluster.close(PATIENCE_S)
    wait_all_gone(soon())
    exits = [cluster.wait_exit(C[slot], Deadline(0)) for slot in range(2)]
    assert [(e.pid, e.code) for e in exits] == [(pid, 0) for pid in pids]


def test_a_forked_copy_closes_nothing(joined):
    cluster, socks = joined
    child = os.fork()
    if child == 0:
        cluster.close(0.0)
        os._exit(0)
    os.waitpid(child, 0)
    assert ask(socks[0], b"who").startswith(b"0 ")


@pytest.mark.template
def test_a_worker_that_is_put_off_starts_for_a_signal_or_never(cluster):
    first = [cluster.start(C[slot]) for slot in range(2)]
    for slot, sock in enumerate(first):
        cluster.signal(C[slot], signal.SIGKILL)
        assert cluster.wait_exit(C[slot], soon()) and ended(sock)
    put_off = [cluster.start(C[slot], 1000.0) for slot in range(2)]
    cluster.signal(C[0], signal.SIGKILL)
    assert cluster.wait_exit(C[0], soon()).code == -signal.SIGKILL
    assert cluster.wait_pid(C[1], Deadline(0)) is None
    cluster.drop_rest()
    assert all(map(ended, put_off))
    for sock in (*first, *put_off):
        sock.close()


@pytest.mark.template
def test_workers_die_with_their_template(joined):
    cluster, socks = joined
    pids = [int(ask(sock, b"who").split()[1]) for sock in socks]
    os.kill(cluster.pid, signal.SIGKILL)
    assert all(ended(sock) for sock in socks)
    assert all(wait_dead(pid) for pid in pids)
    assert cluster.wait_exit(C[0], soon()) is None
    assert cluster.is_gone


@pytest.mark.template
def test_after_the_template_was_killed_a_start_gives_a_socket_that_ends(joined):
    cluster, socks = joined
    os.kill(cluster.pid, signal.SIGKILL)
    assert all(ended(sock) for sock in socks)
    cluster.wait_exit(C[0], soon())
    with cluster.start(C[0]) as sock:
        assert ended(sock)


TRAINER = """
import multiprocessing, os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.contract import test_cluster
from tests.contract.test_cluster import deaf_to_all
from stoker.clock import Deadline
from tests import methods
from tests.slots import C
cluster = getattr(test_cluster, sys.argv[3])(deaf_to_all)
pids = [cluster.wait_pid(C[slot], Deadline(10)) for slot in range(2)]
socks = [cluster.start(C[slot]) for slot in range(2)]
for sock in socks:
    sock.recv(64)
print(cluster.pid, *pids, flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(0)
"""


def deaf_to_all(slot, sock):
    """A worker that looks at neither its socket nor SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock.sendall(b"deaf")
    while True:
        signal.pause()


@pytest.mark.parametrize("how", ["kill", "os._exit"])
@pytest.mark.parametrize("kind", ["local", "started"])
def test_when_the_trainer_is_gone_nothing_stays(kind, how, request):
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(request.config.rootpath), how, kind],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pids = list(map(int, trainer.stdout.readline().split()))
    trainer.wait(PATIENCE_S)
    trainer.stdout.close()
    assert len(pids) == 3 and all(wait_dead(pid) for pid in pids)


def test_a_pair_of_clusters_does_not_mix(make):
    one, other = make(obey, 1), make(obey, 1)
    with one.start(C[0]) as first, other.start(C[0]) as second:
        ask(second, b"who")
        assert int(ask(first, b"who").split()[1]) == one.wait_pid(C[0], soon())
        ask(first, b"exit")
        assert one.wait_exit(C[0], soon()).code == 7
        assert other.wait_exit(C[0], Deadline(0)) is None


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("make", [local, started])
def test_workers_that_were_put_off_start_or_end_when_told(make, start):
    num_first = len(os.sched_getaffinity(0)) + 2
    cluster = make(num_first=num_first)
    socks = [cluster.start(C[slot]) for slot in range(num_first)]
    if start:
        cluster.start_rest()
        for slot, sock in enumerate(socks):
            sock.sendall(b"who")
            assert sock.recv(64).split()[0] == str(slot).encode()
    else:
        cluster.drop_rest()
        for sock in socks[-2:]:
            assert sock.recv(64) == b""
    cluster.close(0.0)
    for sock in socks:
        sock.close()
    wait_all_gone(soon())


@pytest.mark.template
def test_a_template_that_does_not_answer_is_killed_at_exit_with_its_workers(make):
    cluster = make()
    socks = [cluster.start(C[slot]) for slot in range(2)]
    for sock in socks:
        ask(sock, b"who")
    os.kill(cluster.pid, signal.SIGSTOP)
    pid = cluster.pid
    cluster.close(0.0)
    wait_all_gone(Deadline(0.0))
    assert cluster.is_gone
    assert wait_dead(pid)
    for sock in socks:
        assert sock.recv(64) == b"", "its workers end with it"
        sock.close()
