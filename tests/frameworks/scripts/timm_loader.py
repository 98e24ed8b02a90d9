"""timm's data pipeline on a folder of JPEG photographs. usage: timm_loader.py"""

from pathlib import Path

import material
from timm.data import Mixup, create_dataset, create_loader


def training_loader(photos: Path, *, multi_epochs: bool):
    return create_loader(
        create_dataset("", root=str(photos), is_training=True),
        input_size=(3, 64, 64),
        batch_size=16,
        is_training=True,
        use_prefetcher=False,
        auto_augment="rand-m9-mstd0.5",
        re_prob=0.25,
        re_mode="pixel",
        num_workers=2,
        pin_memory=False,
        use_multi_epochs_loader=multi_epochs,
        persistent_workers=not multi_epochs,
    )


def main() -> None:
    material.begin()
    photos = material.make_photos(Path("photos"))
    model = material.Tiny()
    mix = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=4)
    loader = training_loader(photos, multi_epochs=False)
    material.train((mix(*batch) for batch in loader), model, 1)
    material.train(loader, model, 1)
    material.train(training_loader(photos, multi_epochs=True), model, 2)
    evaluation = create_loader(
        create_dataset("", root=str(photos)),
        input_size=(3, 64, 64),
        batch_size=16,
        use_prefetcher=False,
        num_workers=2,
        persistent_workers=False,
    )
    for number, (inputs, targets) in enumerate(evaluation):
        material.tell("right", number, (model(inputs).argmax(1) == targets).sum())
    material.end()


if __name__ == "__main__":
    main()
