"""Standard output is a StringIO while the loop runs, in the trainer and in what workers print."""

import contextlib
import io

from torch.utils.data import DataLoader, Dataset


class Prints(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        print("sample", index)
        return index


for workers in (0, 1):
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for batch in DataLoader(Prints(), 2, num_workers=workers):
            print("batch", batch.tolist())
    print(out.getvalue().split("\n"))
