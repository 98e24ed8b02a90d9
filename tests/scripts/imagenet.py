"""Train a small network on a folder of photographs, on one process or on several.

usage: python imagenet.py --data FOLDER
       torchrun --nproc-per-node 2 imagenet.py --data FOLDER
"""

import argparse
import os
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

NORMALIZE = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-b", "--batch-size", type=int, default=8)
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--print-freq", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_loaders(args, world_size):
    train_set = ImageFolder(
        args.data / "photos" / "train",
        transforms.Compose(
            [
                transforms.RandomResizedCrop(64),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                NORMALIZE,
            ]
        ),
    )
    val_set = ImageFolder(
        args.data / "photos" / "val",
        transforms.Compose(
            [transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor(), NORMALIZE]
        ),
    )
    distributed = world_size > 1
    train_sampler = DistributedSampler(train_set) if distributed else None
    val_sampler = (
        DistributedSampler(val_set, shuffle=False, drop_last=True) if distributed else None
    )
    common = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": True}
    train_loader = DataLoader(
        train_set, shuffle=train_sampler is None, sampler=train_sampler, **common
    )
    return train_loader, DataLoader(val_set, sampler=val_sampler, **common), train_sampler


def make_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4, padding=3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, num_classes),
    )  # fmt: skip


def train(loader, model, optimizer, epoch, args, rank):
    model.train()
    for step, (images, target) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.print_freq == 0 and rank == 0:
            print(f"Epoch: [{epoch}][{step}/{len(loader)}] Loss {loss.item():.8f}")


@torch.no_grad()
def validate(loader, model):
    """The share of right answers, in this process's part of the images."""
    model.eval()
    num_right = num_images = 0
    for images, target in loader:
        num_right += (model(images).argmax(1) == target).sum().item()
        num_images += len(target)
    return num_right / num_images


def main():
    args = parse_args()
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    if world_size > 1:
        dist.init_process_group("gloo")
    train_loader, val_loader, train_sampler = make_loaders(args, world_size)
    model = make_model(len(train_loader.dataset.classes))
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    best = 0.0
    for epoch in range(args.epochs):
        if train_sampler is not None:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, optimizer, epoch, args, rank)
        accuracy = validate(val_loader, model)
        best = max(best, accuracy)
        if rank == 0:
            print(f" * Acc@1 {accuracy:.6f} best {best:.6f}")
            torch.save({"epoch": epoch + 1, "model": model.state_dict()}, "checkpoint.pt")
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
