"""The loop tells the batch sampler to stop, or what to draw next: how far it ran ahead shows."""

from torch.utils.data import DataLoader


class Curriculum:
    def __init__(self):
        self.level, self.is_done = 0, False

    def __iter__(self):
        k = 0
        while not self.is_done:
            yield [self.level * 100 + k, self.level * 100 + k + 1]
            k += 1


for workers in (0, 1, 2):
    for persistent in {False, workers > 0}:
        sampler = Curriculum()
        loader = DataLoader(
            range(10_000), batch_sampler=sampler, num_workers=workers, persistent_workers=persistent
        )
        for _ in range(2):
            sampler.is_done, got = False, []
            for batch in loader:
                got.append(batch.tolist())
                sampler.level += 1
                sampler.is_done = len(got) >= 6
            print(workers, persistent, got)
