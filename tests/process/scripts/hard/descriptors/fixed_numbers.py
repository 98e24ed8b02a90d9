"""Files are put on fixed descriptor numbers between epochs, as shells' `exec 7>file` does."""

import os

from torch.utils.data import DataLoader

loader = DataLoader(range(8), 2, num_workers=2)
for epoch in range(3):
    print([b.tolist() for b in loader])
    file = os.open(f"file{epoch}", os.O_CREAT | os.O_WRONLY)
    for number in range(3, 30):
        if number != file:
            os.dup2(file, number)
    os.write(20, b"whole\n")
