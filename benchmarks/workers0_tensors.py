"""How fast a beginner's loop goes: CIFAR-like tensors in the script itself, transforms, num_workers=0.

50,000 uint8 images of 32x32 as a global, which the dataset's functions name; ToPILImage, RandomCrop, flip,
ToTensor, Normalize, which draw; shuffled batches of 64. The step is a small network on one core, about as
long as loading. Whole epochs are counted. Prints images_per_s. A plain script: it runs the same
under python and under stoker.
"""

import argparse
import logging

import torch
from one_side import print_line, timed_epoch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

BATCH_SIZE = 64
NUM_SAMPLES = 12_800  # of the 50,000, an epoch
log = logging.getLogger(__name__)
IMAGES_NCHW = torch.randint(0, 255, (50_000, 3, 32, 32), dtype=torch.uint8)
LABELS_N = torch.randint(0, 10, (50_000,))
AUGMENT = transforms.Compose(
    [
        transforms.ToPILImage(),
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.5] * 3),
    ]
)


class Images(Dataset):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        log.debug("sample %d", index)
        return AUGMENT(IMAGES_NCHW[index]), LABELS_N[index]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 14 * 14, 10),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-epochs", type=int, default=3, help="counted, after one that warms")
    flags = parser.parse_args()
    torch.set_num_threads(1)  # the step keeps one core busy
    loader = DataLoader(Images(), BATCH_SIZE, shuffle=True)
    model = network()
    step = lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()  # noqa: E731
    timed_epoch(loader, step)
    seconds = [timed_epoch(loader, step) for _ in range(flags.num_epochs)]
    wall_s, step_s = (sum(column) for column in zip(*seconds, strict=True))
    num_images = flags.num_epochs * len(loader.dataset)
    print_line({"images_per_s": num_images / wall_s, "step_frac": step_s / wall_s})


if __name__ == "__main__":
    main()
