"""Every worker starts programs that outlive it and hold whatever they inherited."""

import os
import signal
import subprocess
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Starts(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index < 2:
            started = subprocess.Popen(["sleep", "300"], close_fds=False)
            Path(f"pid{index}").write_text(str(started.pid))
        if index == 3:
            os.system("sleep 300 & echo $! > pid3")
        return index


print([b.tolist() for b in DataLoader(Starts(), 1, num_workers=2)])
for file in sorted(Path().glob("pid*")):
    os.kill(int(file.read_text()), signal.SIGKILL)
    file.unlink()
print("nobody waited for them")
