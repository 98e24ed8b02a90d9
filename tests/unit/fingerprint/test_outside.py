"""Every trace outside of Python's objects is told, and output is swallowed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
from stoker.fingerprint.outside import Outside
import socket
answer = socket.socket(fileno=int(sys.argv[2]))
log = open("log", "w")
outside = Outside()
os.mkdir("unseen")
outside.begin()
assert outside.traces() == ""
outside.begin()
exec(sys.argv[1])
told = outside.traces()
outside.begin()
answer.send(json.dumps([told, outside.traces()]).encode())
"""
PRINTS = "it prints, or writes to an open file"
TRACES = {
    "print('x')": PRINTS,
    "log.write('x'); log.flush()": PRINTS,
    "print('x', file=sys.stderr)": PRINTS,
    "os.write(1, b'x')": PRINTS,
    "import ctypes; ctypes.CDLL(None).puts(b'x'); ctypes.CDLL(None).fflush(None)": PRINTS,
    "import logging; logging.getLogger().warning('x')": PRINTS,
    "import warnings; warnings.warn('x')": PRINTS,
    "open('new', 'w').close()": "it writes to 'new'",
    "open('old', 'ab').close()": "it writes to 'old'",
    "open('old', 'r+').close()": "it writes to 'old'",
    "os.close(os.open('new', os.O_CREAT | os.O_WRONLY))": "it writes to 'new'",
    "os.remove('old')": "it calls os.remove",
    "os.rename('old', 'new')": "it calls os.rename",
    "os.mkdir('folder')": "it calls os.mkdir",
    "os.environ['X'] = '1'": "it calls os.putenv",
    "import subprocess; subprocess.run(['true'])": "it calls subprocess.Popen",
    "os.fork() or os._exit(0); os.wait()": "it calls os.fork",
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))":
        "it calls socket.connect",
    "open('old').read()": "",
    "os.listdir('.')": "",
    "sum(range(10))": "",
}  # fmt: skip


@pytest.mark.parametrize("code", TRACES)
def test_a_trace_is_told_once(code, tmp_path: Path):
    (tmp_path / "old").write_text("text")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, code, str(theirs.fileno())], capture_output=True,
            cwd=tmp_path, env=environ, check=True, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        assert json.loads(ours.recv(1000)) == [TRACES[code], ""]
    assert done.stdout == done.stderr == b""
