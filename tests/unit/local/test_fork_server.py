"""The fork server that starts while a script still imports: its workers see what they would have seen."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.clock import Deadline
from stoker.local import fork_server

RUN = (sys.executable, "-m", "stoker", "run", "--quiet", "--")
SCRIPT = """
import multiprocessing, os, sys
multiprocessing.set_start_method("forkserver", force=True)
sys.path.insert(0, "before")
import torch
from torch.utils.data import DataLoader, Dataset

class Seen(Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        import json, resource, signal
        return json.dumps([
            {name: value for name, value in os.environ.items() if not name.startswith("STOKER_")},
            os.getcwd(), sys.path, sys.argv, sys.flags, __name__, multiprocessing.current_process().name,
            resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0), os.getpgrp(), os.getsid(0), os.nice(0),
            sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), str(signal.getsignal(signal.SIGINT)),
        ])

class Own(DataLoader):
    def _get_iterator(self):
        return super()._get_iterator()

if __name__ == "__main__":
    sys.path.append("after")
    sys.argv.append("more")
    exec(sys.argv[1])
    opened = sorted(os.listdir("/proc/self/fd"))
    print(*next(iter(DataLoader(Seen(), num_workers=1))))
    from multiprocessing.forkserver import _forkserver
    print("load_and_serve" in open(f"/proc/{_forkserver._forkserver_pid}/cmdline").read())
    print(opened, os.wait, os.waitpid)
"""


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ("os.environ['TRITON_CACHE_DIR'] = 'x'", True),
        ("os.environ['CHANGED'] = '1'; os.umask(0o27)", False),
        (
            "\npid = os.fork() or os._exit(0)\nos.waitpid(pid, 0)\ntry: os.wait()\nexcept ChildProcessError: pass",
            False,
        ),  # nobody is left to be waited for
        (
            "\nimport subprocess\nsubprocess.Popen(['true'])\nwhile True:\n    try: os.wait()\n"
            "    except ChildProcessError: break",
            False,
        ),
        ("import subprocess; subprocess.run(['true'])", True),
    ],
    ids=["torchs own", "changed", "forks", "waits for any", "waits for one"],
)
def test_workers_see_what_they_would_have_seen(change, is_taken, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    plain, ours = (_run(tmp_path, change, *way) for way in ((), RUN))
    assert json.loads(ours[0]) == json.loads(plain[0])
    assert (plain[1], ours[1]) == ("False", str(is_taken))
    assert ours[2] == plain[2]


WARNS = """
import os, sys, warnings
from pathlib import Path

class Warns:
    def find_spec(self, name, *more):
        if name == "torch":
            Path("early").write_text(str(os.getpid()))
            warnings.warn("of an early server alone")

if any("load_and_serve" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Warns())
"""


def test_where_its_imports_warned_it_begins_afresh_with_the_servers_command(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "sitecustomize.py").write_text(WARNS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    change = "import multiprocessing.forkserver as f; import atexit; atexit.register(lambda: print(f._forkserver._forkserver_pid))"
    plain, ours = (_run(tmp_path, change, *way) for way in ((), RUN))
    assert json.loads(ours[0]) == json.loads(plain[0])
    assert [ours[1], ours[3]] == ["False", (tmp_path / "early").read_text()]


TOLD = "import sys; print('stoker.local.fork_server' in sys.modules and sys.modules['stoker.local.fork_server']._early)"


@pytest.mark.parametrize(
    ("before", "flags"),
    [("", ("--off",)), ("next(iter(Own(Seen(), num_workers=1)));", ())],
    ids=["off", "left to torch"],
)
def test_where_torch_starts_its_own_there_is_none(before, flags, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    assert _run(tmp_path, before + TOLD, *RUN[:-1], *flags, "--")[0] in ("False", "None")


def test_it_ends_with_the_script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    told = "pid = sys.modules['stoker.local.fork_server']._early.pid; print(pid, flush=True); os.kill(os.getpid(), 9)"
    run = subprocess.run(
        [*RUN, sys.executable, "train.py", told], cwd=tmp_path, stdout=subprocess.PIPE, timeout=120
    )
    ended = Deadline(10)
    while Path(f"/proc/{int(run.stdout)}").exists():
        assert not ended.is_over()


def _run(folder, change, *way):
    # Python's own tracker of semaphores may look for one that its process has just removed, under plain torch too.
    env = os.environ | {"PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker"}
    command = [*way, sys.executable, "train.py", change]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=env)
    assert not run.stderr
    return run.stdout.splitlines()


CHANGES = {
    "environment": lambda: os.environ.update(CHANGED="1"),
    "folder": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o27),
    "limit": lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
    "ignored": lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "cores": lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
    "nice": lambda: os.nice(1),
    "session": os.setsid,
    "output": lambda: os.dup2(os.open("/dev/zero", os.O_RDWR), 1),
    "input": lambda: os.close(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_process_inherits_is_compared(change):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        before, again = fork_server._inherited(), fork_server._inherited()
        CHANGES[change]()
        os._exit(42 if before == again != fork_server._inherited() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
