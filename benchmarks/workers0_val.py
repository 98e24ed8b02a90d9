"""How fast a validation loop with num_workers=0 gets through photographs: load, then look.

JPEG 500x375: decode with PIL, Resize, CenterCrop, ToTensor, Normalize: nothing random. The step is
a small network on one core, not quite as long as loading. Whole epochs of 4,096 samples are counted,
their beginnings included. Prints images_per_s. A plain script: it runs the same under python and under stoker.
"""

import argparse
import itertools

import torch
from images import Photos
from one_side import print_line, timed_epoch
from photos import photo_folder
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

BATCH_SIZE = 32
CHANNELS = (3, 16, 32, 64)  # of the network: a step is then not quite as long as loading
NUM_ROUNDS = 4  # each photograph comes so many times in an epoch
LOOK = transforms.Compose(
    [
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)


class Validation(Photos):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.pairs[index]
        return LOOK(Image.open(path).convert("RGB")), label


def network() -> nn.Module:
    """Each stage halves height and width."""
    layers: list[nn.Module] = []
    for channels_in, channels_out in itertools.pairwise(CHANNELS):
        layers += [nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], 9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-epochs", type=int, default=1, help="counted, after one that warms")
    flags = parser.parse_args()
    torch.set_num_threads(1)  # the step keeps one core busy
    loader = DataLoader(Validation(photo_folder(), NUM_ROUNDS), BATCH_SIZE)
    model = network().eval()
    step = lambda batch: model(batch[0])  # noqa: E731
    with torch.no_grad():
        timed_epoch(loader, step)
        seconds = [timed_epoch(loader, step) for _ in range(flags.num_epochs)]
    wall_s, step_s = (sum(column) for column in zip(*seconds, strict=True))
    num_images = flags.num_epochs * len(loader.dataset)
    print_line({"images_per_s": num_images / wall_s, "step_frac": step_s / wall_s})


if __name__ == "__main__":
    main()
