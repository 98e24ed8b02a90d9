"""How fast video clips arrive: 32 frames, a batch of 8 is 154 MB.

uint8 frames in memory: flip, /255, resize to 256x256, crop 224x224, normalise.
Prints clips_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

# C channels, T frames, H height, W width
BATCH_SIZE = 8
NUM_RESIDENT = 16  # clips of 7.4 MB
MEAN_C111 = torch.tensor([0.45, 0.45, 0.45]).view(3, 1, 1, 1)
STD_C111 = torch.tensor([0.225, 0.225, 0.225]).view(3, 1, 1, 1)


class Clips(Dataset):
    def __init__(self, num_clips: int = 1_000_000) -> None:
        shape_NCTHW = (NUM_RESIDENT, 3, 32, 240, 320)  # noqa: N806 - shape suffix, house style
        self.frames_NCTHW = torch.randint(0, 256, shape_NCTHW, dtype=torch.uint8)
        self.num_clips = num_clips

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> torch.Tensor:
        clip = self.frames_NCTHW[index % NUM_RESIDENT]
        if torch.rand(()) < 0.5:
            clip = clip.flip(-1)
        clip = functional.interpolate(clip.float() / 255, size=(256, 256), mode="bilinear")
        top, left = torch.randint(0, 256 - 224 + 1, (2,)).tolist()
        clip = clip[:, :, top : top + 224, left : left + 224]
        return (clip - MEAN_C111) / STD_C111


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    loader = DataLoader(Clips(), batch_size=BATCH_SIZE, num_workers=flags.num_workers)
    figures = measure_rate(loader, flags)
    print_line({"clips_per_s": figures["batches_per_s"] * BATCH_SIZE, **figures})
