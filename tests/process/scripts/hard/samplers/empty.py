"""Nothing to load: no samples, drop_last of a short one, an empty batch sampler, empty batches."""

from torch.utils.data import DataLoader

for workers in (0, 1, 2):
    for persistent in {False, workers > 0}:
        more = {"num_workers": workers, "persistent_workers": persistent}
        for loader in (
            DataLoader([], 2, **more),
            DataLoader(range(3), 4, drop_last=True, **more),
            DataLoader(range(3), batch_sampler=[], **more),
            DataLoader(range(3), batch_sampler=[[], [1], []], collate_fn=lambda s: s, **more),
        ):
            print([len(loader), *loader, *loader], end=" ")
    print()
