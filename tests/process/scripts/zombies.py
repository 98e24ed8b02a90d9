"""As PID 1 runs a script and reaps nobody else; the script tells how many zombies there are."""

import subprocess
import sys
import time
from pathlib import Path

if len(sys.argv) > 1:
    sys.exit(subprocess.Popen(sys.argv[1:]).wait())

import torch
from torch.utils.data import DataLoader

end_s = time.monotonic() + 7  # PID 1 has five seconds
while time.monotonic() < end_s:
    assert len(list(DataLoader(torch.arange(8), 4, num_workers=1))) == 2
    time.sleep(0.5)
for _ in range(20):
    assert len(list(DataLoader(torch.arange(8), 4, num_workers=1))) == 2
states = [
    file.read_text().rpartition(")")[2].split()[0] for file in Path("/proc").glob("[0-9]*/stat")
]

print(states.count("Z") <= 16)
