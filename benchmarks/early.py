"""How long short jobs take, from the first iter() to the last batch: little data, few epochs, as people try things.

    finetune   800 + 200 photographs, a training and a validation loader, a small model
    new        512 photographs, augmented; a batch is used by nobody, as in those below
    table      512 photographs by the rows of a pandas table, resized and cropped in the middle
    mel, mel-clean   800 sounds of 5 s as mel spectrograms, with and without SpecAugment
    clips      24 MP4 clips of 10 s

Workers begin anew in each epoch. Prints loop_s, and epochs_s of each epoch. A plain script: it runs the same under python and under stoker.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import media
import torch
from one_side import num_usable_cores, print_line
from photos import photo_folder
from PIL import Image
from remembered_photos import MEAN, STD, Photos
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

NUM_TRAIN, NUM_VAL, NUM_NEW, NUM_SOUNDS = 800, 200, 512, 800
TO_TENSOR = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
AUGMENT = transforms.Compose(
    [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *TO_TENSOR]
)
CENTER = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), *TO_TENSOR])


class Table(Dataset):
    """As PyTorch's tutorial on custom datasets has it: labels in a pandas table."""

    def __init__(self, files: list[Path]) -> None:
        import pandas

        names = sorted({file.parent.name for file in files})
        labels = [names.index(file.parent.name) for file in files]
        self.img_labels = pandas.DataFrame({"file": [str(file) for file in files], "label": labels})
        self.transform = CENTER

    def __len__(self) -> int:
        return len(self.img_labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.img_labels.iloc[index, 0]).convert("RGB")
        return self.transform(image), int(self.img_labels.iloc[index, 1])


def dataset_of(case: str) -> tuple[Dataset, int]:
    """The dataset of a case with one loader, and its batch size."""
    if case == "new":
        return Photos(sorted(photo_folder().glob("*/*.jpg"))[-NUM_NEW:], AUGMENT), 32
    if case == "table":
        return Table(sorted(photo_folder().glob("*/*.jpg"))[:NUM_NEW]), 32
    if case.startswith("mel"):
        from remembered_sounds import Sounds

        files = sorted(media.sounds(NUM_SOUNDS).glob("*.wav"))
        return Sounds(files, augment=case == "mel"), 16
    from remembered_videos import Videos

    return Videos(sorted(media.videos(24, seconds=10).glob("*.mp4"))), 2


def small_model() -> nn.Module:
    """Takes a fifth of the time of the job on two cores."""
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16),
    )  # fmt: skip


def finetune(num_workers: int) -> Callable[[], float]:
    """Returns what runs an epoch, and returns the seconds that the model took of it."""
    files = sorted(photo_folder().glob("*/*.jpg"))
    train = Photos(files[:NUM_TRAIN], AUGMENT)
    val = Photos(files[NUM_TRAIN : NUM_TRAIN + NUM_VAL], CENTER)
    loaders = {
        "train": DataLoader(train, 32, shuffle=True, num_workers=num_workers),
        "val": DataLoader(val, 32, num_workers=num_workers),
    }
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step(phase: str, images_BCHW: torch.Tensor, labels_B: torch.Tensor) -> None:  # noqa: N803
        with torch.set_grad_enabled(phase == "train"):
            loss = functional.cross_entropy(model(images_BCHW), labels_B)
        if phase == "train":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def epoch() -> float:
        model_s = 0.0
        for phase in ("train", "val"):
            model.train(phase == "train")
            for batch in loaders[phase]:
                began_s = time.perf_counter()
                step(phase, *batch)
                model_s += time.perf_counter() - began_s
        return model_s

    return epoch


def only_read(case: str, num_workers: int) -> Callable[[], float]:
    dataset, batch_size = dataset_of(case)
    loader = DataLoader(dataset, batch_size, shuffle=case != "table", num_workers=num_workers)

    def epoch() -> float:
        for _ in loader:
            pass
        return 0.0

    return epoch


def main() -> None:
    cases = ("finetune", "new", "table", "mel", "mel-clean", "clips")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=cases, required=True)
    parser.add_argument("--num-workers", type=int, default=num_usable_cores(), metavar="W")
    parser.add_argument("--num-epochs", type=int, required=True)
    flags = parser.parse_args()
    torch.manual_seed(0)
    if flags.case == "finetune":
        epoch = finetune(flags.num_workers)
    else:
        epoch = only_read(flags.case, flags.num_workers)
    epochs_s, model_s = [], 0.0
    for _ in range(flags.num_epochs):
        began_s = time.perf_counter()
        model_s += epoch()
        epochs_s.append(time.perf_counter() - began_s)
    print_line({"loop_s": sum(epochs_s), "model_s": model_s, "epochs_s": epochs_s})


if __name__ == "__main__":
    main()
