"""Train a small ResNet on a folder of images: one sub-folder per class.

usage: python examples/images/train.py --data FOLDER
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.around = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.around = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.BatchNorm2d(channels_out),
            )

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.around(x))


class SmallResNet(nn.Sequential):
    """Patches of 8x8, then four stages of one block: `width` channels in the first, 8 x in the last."""

    def __init__(self, num_classes, width):
        stages = [Block(width << max(0, i - 1), width << i, 1 if i == 0 else 2) for i in range(4)]
        super().__init__(
            nn.Conv2d(3, width, 8, stride=8, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            *stages,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width * 8, num_classes),
        )


def parse_args():
    parser = argparse.ArgumentParser(description="Train a small ResNet on a folder of images.")
    parser.add_argument("--data", required=True, help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2, help="num_workers of the DataLoader")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=8, help="channels of the first stage")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--limit", type=int, help="use only this many images, drawn at random")
    parser.add_argument("--val-frac", type=float, default=0.0, help="share held out for validation")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def make_loaders(args, device):
    to_tensor = [
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
    augment = [
        transforms.RandomResizedCrop(args.image_size),
        transforms.RandomHorizontalFlip(),
    ]
    centre = [
        transforms.Resize(args.image_size * 8 // 7),
        transforms.CenterCrop(args.image_size),
    ]
    train_set = ImageFolder(args.data, transforms.Compose(augment + to_tensor))
    val_set = ImageFolder(args.data, transforms.Compose(centre + to_tensor))
    num_classes = len(train_set.classes)
    num_val = 0
    if args.limit is not None or args.val_frac:
        picked = torch.randperm(len(train_set))[: args.limit].tolist()
        num_val = int(len(picked) * args.val_frac)
        train_set, val_set = Subset(train_set, picked[num_val:]), Subset(val_set, picked[:num_val])
    common = {
        "batch_size": args.batch_size,
        "num_workers": args.workers,
        "pin_memory": device.type == "cuda",
    }
    train_loader = DataLoader(train_set, shuffle=True, **common)
    val_loader = DataLoader(val_set, **common) if num_val else None
    return train_loader, val_loader, num_classes


def train_one_epoch(model, loader, optimizer, device):
    model.train()
    loss_sum, num_images = 0.0, 0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        num_images += len(labels)
    return loss_sum / num_images, num_images


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    num_right, num_images = 0, 0
    for images, labels in loader:
        found = model(images.to(device, non_blocking=True)).argmax(dim=1).cpu()
        num_right += (found == labels).sum().item()
        num_images += len(labels)
    return num_right / num_images, num_images


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, val_loader, num_classes = make_loaders(args, device)
    model = SmallResNet(num_classes, args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)

    for epoch in range(args.epochs):
        start = time.perf_counter()
        loss, num_images = train_one_epoch(model, train_loader, optimizer, device)
        told = f"epoch {epoch + 1}/{args.epochs}  loss {loss:.6f}"
        if val_loader is not None:
            accuracy, num_val_images = validate(model, val_loader, device)
            num_images += num_val_images
            told += f"  accuracy {accuracy:.3f}"
        seconds = time.perf_counter() - start
        told += f"  {num_images} images in {seconds:.2f} s  {num_images / seconds:.1f} images/s"
        print(told, flush=True)


if __name__ == "__main__":
    main()
