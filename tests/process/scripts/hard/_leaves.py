"""Leaves a process and a file behind, and ends by a signal: for the test of the runner."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

Path("made").write_text("here")
Path(tempfile.gettempdir(), "left").touch()
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("out", flush=True)
print("err", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
