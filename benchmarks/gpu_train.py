"""How fast a GPU trains on augmented photographs: ResNet-50 in bfloat16, batch 64.

The photographs and transforms of images.py, in pinned memory. Prints images_per_s, and
step_images_per_s, of the same step on one batch that lies on the GPU: what that alone can do.
A plain script: it runs the same under python and under stoker.
"""

import time

import torch
import torchvision
from images import BATCH_SIZE, Photos
from one_side import measure_rate, print_line, rate_arguments
from photos import photo_folder
from torch import nn
from torch.utils.data import DataLoader

NUM_STEPS = 40  # of the step alone, after as many that warm it


class Trainer:
    def __init__(self) -> None:
        model = torchvision.models.resnet50().to("cuda", memory_format=torch.channels_last)
        self.model, self.loss = model.train(), nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to("cuda", non_blocking=True)
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.loss(self.model(images), labels)
        loss.backward()
        self.optimizer.step()

    def step_images_per_s(self) -> float:
        images = torch.rand(BATCH_SIZE, 3, 224, 224, device="cuda")
        batch = images, torch.zeros(BATCH_SIZE, dtype=torch.long, device="cuda")
        for number in range(2 * NUM_STEPS):
            if number == NUM_STEPS:
                torch.cuda.synchronize()
                began_s = time.perf_counter()
            self.step(*batch)
        torch.cuda.synchronize()
        return NUM_STEPS * BATCH_SIZE / (time.perf_counter() - began_s)


class Steps:
    """An epoch's batches, each after the step with the one before it."""

    def __init__(self, loader: DataLoader, trainer: Trainer) -> None:
        self.loader, self.trainer = loader, trainer

    def __iter__(self):
        before = None
        for batch in self.loader:
            self.trainer.step(*batch)
            if (
                before is not None
            ):  # the GPU is at most a step behind, as with a loss that is printed
                before.synchronize()
            before = torch.cuda.Event()
            before.record()
            yield batch


def main() -> None:
    parser = rate_arguments(__doc__)
    flags = parser.parse_args()
    trainer = Trainer()
    step_rate = trainer.step_images_per_s()
    dataset = Photos(photo_folder(), 100)
    loader = DataLoader(
        dataset, BATCH_SIZE, shuffle=True, num_workers=flags.num_workers, pin_memory=True
    )
    figures = measure_rate(Steps(loader, trainer), flags)
    rate = figures["batches_per_s"] * BATCH_SIZE
    print_line({"images_per_s": rate, "step_images_per_s": step_rate, **figures})


if __name__ == "__main__":
    main()
