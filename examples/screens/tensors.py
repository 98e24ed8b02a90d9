"""A beginner's first script: images as one tensor, transforms, no workers, a bar of rich."""

import torch
from rich.progress import track
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

torch.manual_seed(0)
images = torch.randint(0, 255, (20_000, 3, 32, 32), dtype=torch.uint8)
labels = torch.randint(0, 10, (20_000,))
augment = transforms.Compose(
    [
        transforms.ToPILImage(),
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
)


class Images(Dataset):
    def __len__(self):
        return len(images)

    def __getitem__(self, index):
        return augment(images[index]), labels[index]


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
loader = DataLoader(Images(), 64, shuffle=True)
for epoch in range(2):
    for x, y in track(loader, f"epoch {epoch}"):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
