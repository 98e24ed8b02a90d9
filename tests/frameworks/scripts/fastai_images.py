"""fastai: a DataBlock of JPEG photographs and a Learner."""

from pathlib import Path

import material
import torch
from fastai.vision.all import (
    Callback,
    CategoryBlock,
    CrossEntropyLossFlat,
    DataBlock,
    ImageBlock,
    Learner,
    RandomSplitter,
    Resize,
    aug_transforms,
    get_image_files,
    parent_label,
    set_seed,
)


class Tell(Callback):
    def after_loss(self) -> None:
        material.tell("loss", self.epoch, self.training, self.loss)


def main() -> None:
    material.begin()
    set_seed(7, reproducible=True)
    photos = material.make_photos(Path("photos"))
    block = DataBlock(
        blocks=(ImageBlock, CategoryBlock),
        get_items=lambda folder: sorted(get_image_files(folder)),
        splitter=RandomSplitter(0.25, seed=7),
        get_y=parent_label,
        item_tfms=Resize(64),
        batch_tfms=aug_transforms(size=48),
    )
    for num_workers in (2, 0):
        loaders = block.dataloaders(
            photos, bs=16, num_workers=num_workers, device=torch.device("cpu")
        )
        learner = Learner(loaders, material.Tiny(), loss_func=CrossEntropyLossFlat(), cbs=Tell())
        with learner.no_bar(), learner.no_logging():
            learner.fit(1 + num_workers // 2, 0.01)
            some = loaders.test_dl(sorted(photos.rglob("*.jpg"))[:40], with_labels=True)
            answers, truth = learner.get_preds(dl=some)
        material.tell("right", (answers.argmax(1) == truth).sum())
    material.end()


if __name__ == "__main__":
    main()
