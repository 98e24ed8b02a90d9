"""Three thousand batches of one number each, with two workers."""

from torch.utils.data import DataLoader

loader = DataLoader(range(3000), 1, num_workers=2, prefetch_factor=4)
print([batch.item() for batch in loader] == list(range(3000)))
