"""Reads what a run before it wrote, and writes: where it stands, in a folder, anew."""

import sys
from pathlib import Path

from torch.utils.data import DataLoader

seen = Path("runs/seen.txt")
num_before = int(seen.read_text()) if seen.exists() else 0
first = int(Path("given/first.txt").read_text())
for _ in DataLoader(range(first, first + 8 + num_before), batch_size=4, num_workers=1):
    pass
seen.write_text(str(num_before + 1))
Path("left.txt").write_text("here")
if "--in-place" in sys.argv:
    with Path("log.txt").open("a") as log:
        log.write("a line\n")
