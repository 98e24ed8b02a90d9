"""A loop of Accelerate's.

usage: accelerate_loop.py plain | dispatch | split | stateful | iterable
"""

import sys

import material
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SITUATION = sys.argv[1]
CONFIGURATION = DataLoaderConfiguration(
    split_batches=SITUATION == "split",
    dispatch_batches=None if SITUATION == "iterable" else SITUATION == "dispatch",
    use_stateful_dataloader=SITUATION == "stateful",
    use_seedable_sampler=SITUATION == "split",
)


class Streamed(IterableDataset):
    """The pictures, shared among the workers; nobody knows how many there are."""

    def __init__(self, num_samples: int) -> None:
        self.pictures = material.Pictures(num_samples)

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return (self.pictures[k] for k in range(first, len(self.pictures), step))


def loader_of(num_samples: int) -> DataLoader:
    if SITUATION == "iterable":
        return DataLoader(Streamed(num_samples), 16, num_workers=2)
    return DataLoader(material.Pictures(num_samples), 16, shuffle=num_samples > 50, num_workers=2)


def epoch_of(accelerator, loader, model, optimiser, epoch) -> None:
    for number, (inputs, targets) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
        if accelerator.is_main_process:
            material.tell("loss", epoch, number, loader.end_of_dataloader, loss)


def main() -> None:
    material.begin()
    set_seed(7)
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=3, dataloader_config=CONFIGURATION
    )
    model = material.Tiny()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    training, validation = loader_of(150), loader_of(50)
    model, optimiser, training, validation = accelerator.prepare(
        model, optimiser, training, validation
    )
    for epoch in range(2):
        epoch_of(accelerator, training, model, optimiser, epoch)
    epoch_of(accelerator, accelerator.skip_first_batches(training, 2), model, optimiser, 2)
    model.eval()
    for inputs, targets in validation:
        answers, truth = accelerator.gather_for_metrics((model(inputs).argmax(1), targets))
        if accelerator.is_main_process:
            material.tell("right", len(truth), (answers == truth).sum())
    if accelerator.is_main_process:
        material.end()
    accelerator.end_training()


if __name__ == "__main__":
    main()
