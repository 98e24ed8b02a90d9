"""MP4 files of which 32 frames are kept, for remembered.py."""

from pathlib import Path

import av
import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Videos(Dataset):
    """32 frames of an MP4, flipped and cropped at random."""

    def __init__(self, files: list[Path]) -> None:
        self.files = [str(file) for file in files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with av.open(self.files[index]) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        kept = np.linspace(0, len(frames) - 1, 32).astype(int)
        clip = torch.from_numpy(np.stack([frames[k] for k in kept])).permute(3, 0, 1, 2)
        if torch.rand(()) < 0.5:
            clip = clip.flip(-1)
        clip = functional.interpolate(clip / 255, size=(256, 256), mode="bilinear")
        top, left = torch.randint(0, 33, (2,)).tolist()
        mean, std = (torch.tensor(each).view(3, 1, 1, 1) for each in (MEAN, STD))
        return (clip[:, :, top : top + 224, left : left + 224] - mean) / std
