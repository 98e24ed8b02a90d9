"""The dataset of epoch_gap.py and start.py: ImageNet's size, held as most scripts hold it.

1.28 million (path, label) pairs in a Python list: about 190 MB of small objects that a fork
must map and that reading one by one makes each process copy. Samples are cheap on purpose.
"""

from torch.utils.data import DataLoader, Dataset, RandomSampler

NUM_PAIRS = 1_280_000


class BigList(Dataset):
    def __init__(self) -> None:
        self.pairs = [(f"train/n{k % 1000:08d}/{k:08d}.JPEG", k % 1000) for k in range(NUM_PAIRS)]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[int, int]:
        path, label = self.pairs[index]
        return len(path), label


def make_loader(num_workers: int) -> DataLoader:
    """Shuffled as shuffle=True does it, 1.28 million indices drawn an epoch, then a tenth used.

    So an epoch takes half a second; it still reads from nearly every page of the list.
    """
    dataset = BigList()
    sampler = RandomSampler(dataset, num_samples=NUM_PAIRS // 10)
    return DataLoader(dataset, batch_size=1024, sampler=sampler, num_workers=num_workers)
