"""Ctrl-C in mid-epoch is caught, the script says goodbye, and takes another epoch."""

import signal

from torch.utils.data import DataLoader

for workers, persistent in ((0, False), (2, False), (2, True)):
    loader = DataLoader(range(20), 2, num_workers=workers, persistent_workers=persistent)
    try:
        for batch in loader:
            if batch[0] == 6:
                signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("interrupted at", batch.tolist())
    print([b.tolist() for b in loader])
