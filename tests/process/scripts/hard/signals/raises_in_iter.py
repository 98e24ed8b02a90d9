"""A handler raises while iter() starts the workers; the loop catches that and starts anew."""

import signal

from torch.utils.data import DataLoader


class Sampler:
    is_armed = True

    def __len__(self):
        return 6

    def __iter__(self):
        for k in range(6):
            if k == 2 and Sampler.is_armed:
                Sampler.is_armed = False
                signal.raise_signal(signal.SIGINT)
            yield k


for persistent in (False, True):
    loader = DataLoader(
        range(6), 1, sampler=Sampler(), num_workers=2, persistent_workers=persistent
    )
    Sampler.is_armed = True
    for _ in range(3):
        try:
            print([b.item() for b in loader])
        except KeyboardInterrupt:
            print("interrupted")
