"""How fast a framework's own fit loop gets through augmented photographs: images.py, within it.

The same files and transforms (timm's own, which are alike), batch 64, and a model that takes next to no time, so that loading is
what is measured, with all that the framework does between two batches. Prints images_per_s.
A plain script: it runs the same under python and under stoker.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from images import BATCH_SIZE, Photos, make_loader
from made_data import data_dir
from one_side import Meter, print_line, rate_arguments
from photos import photo_folder
from torch import nn

NUM_ROUNDS = 100  # of the photographs in an epoch: none ends while it is measured


class Tiny(nn.Module):
    """Looks at a few pixels of each photograph."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(3 * 7 * 7, 16)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803  # its shape
        return self.classes(x_BCHW[:, :, ::32, ::32].flatten(1))


class Counting:
    """The meter as every framework's loop uses it: told each batch, it says when to stop."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self.num_workers = flags.num_workers
        self._meter = Meter(flags.warm_s, flags.count_s)
        self.figures: dict[str, float] = {}

    def is_done(self, batch: Any) -> bool:
        if not self.figures and self._meter.is_done(time.perf_counter()):
            self.figures = self._meter.figures(batch)
        return bool(self.figures)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


def steps(counting: Counting, loader: Iterable[Any], model: nn.Module, backward: Callable) -> None:
    """A plain loop over a framework's loader."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        for batch in loader:
            loss = loss_of(model, batch)
            optimiser.zero_grad()
            backward(loss)
            optimiser.step()
            if counting.is_done(batch):
                return


def fit_lightning(counting: Counting) -> None:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Tiny()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.trainer.should_stop = counting.is_done(batch)
            return loss_of(self.model, batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), make_loader(counting.num_workers, NUM_ROUNDS))


def fit_accelerate(counting: Counting) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, loader = accelerator.prepare(Tiny(), make_loader(counting.num_workers, NUM_ROUNDS))
    steps(counting, loader, model, accelerator.backward)


def fit_transformers(counting: Counting) -> None:
    from transformers import Trainer, TrainingArguments

    class Named(Photos):
        def __getitem__(self, index: int) -> dict[str, Any]:
            photo, label = super().__getitem__(index)
            return {"photo": photo, "labels": label}

    class Answering(Tiny):
        def forward(self, photo: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": nn.functional.cross_entropy(super().forward(photo), labels)}

    class Counted(Trainer):
        def training_step(self, model: nn.Module, inputs: Any, *more: Any) -> torch.Tensor:
            self.control.should_training_stop = counting.is_done(dict(inputs))
            return super().training_step(model, inputs, *more)

    arguments = TrainingArguments(
        "unused",
        per_device_train_batch_size=BATCH_SIZE,
        dataloader_num_workers=counting.num_workers,
        max_steps=1_000_000,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    Counted(Answering(), arguments, train_dataset=Named(photo_folder(), NUM_ROUNDS)).train()


def fit_timm(counting: Counting) -> None:
    from timm.data import create_dataset, create_loader

    loader = create_loader(
        create_dataset("", root=str(photo_folder()), is_training=True),
        input_size=(3, 224, 224),
        batch_size=BATCH_SIZE,
        is_training=True,
        use_prefetcher=False,
        num_workers=counting.num_workers,
        use_multi_epochs_loader=True,
        pin_memory=False,
    )
    steps(counting, loader, Tiny(), torch.Tensor.backward)


def fit_fastai(counting: Counting) -> None:
    from fastai.callback import progress  # noqa: F401  # gives Learner its no_bar
    from fastai.callback.core import Callback, CancelFitException
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from fastai.learner import Learner

    class Count(Callback):
        def after_batch(self) -> None:
            if counting.is_done((*self.learn.xb, *self.learn.yb)):
                raise CancelFitException

    dataset = Photos(photo_folder(), NUM_ROUNDS)
    loader = DataLoader(dataset, bs=BATCH_SIZE, shuffle=True, num_workers=counting.num_workers)
    loss = nn.CrossEntropyLoss()
    learner = Learner(
        DataLoaders(loader, loader, device="cpu"), Tiny(), loss_func=loss, cbs=Count()
    )
    with learner.no_bar(), learner.no_logging():
        learner.fit(1, 0.01)


def fit_ultralytics(counting: Counting) -> None:
    os.environ.setdefault("YOLO_CONFIG_DIR", str(data_dir()))  # else it writes below HOME
    from ultralytics.data.build import InfiniteDataLoader

    loader = InfiniteDataLoader(
        Photos(photo_folder(), NUM_ROUNDS),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=counting.num_workers,
    )
    steps(counting, loader, Tiny(), torch.Tensor.backward)


FITS = {
    "lightning": fit_lightning,
    "accelerate": fit_accelerate,
    "transformers": fit_transformers,
    "timm": fit_timm,
    "fastai": fit_fastai,
    "ultralytics": fit_ultralytics,
}


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--framework", choices=FITS, required=True)
    flags = parser.parse_args()
    warnings.simplefilter("ignore")  # theirs, of each other
    torch.set_num_threads(1)  # the step is nothing; the cores are the workers'
    counting = Counting(flags)
    FITS[flags.framework](counting)
    figures = counting.figures
    print_line(
        {
            "images_per_s": figures["batches_per_s"] * BATCH_SIZE,
            **figures,
            "num_workers": flags.num_workers,
        }
    )


if __name__ == "__main__":
    main()
