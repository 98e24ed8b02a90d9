"""The loop's own code fails in mid-epoch: a traceback through the script's functions, exit code 1."""
# ends: 1

from torch.utils.data import DataLoader


def step(batch):
    if batch[0] == 4:
        raise ArithmeticError("loss is not a number")
    return batch


def train(loader):
    for batch in loader:
        print(step(batch).tolist())


train(DataLoader(range(20), 2, num_workers=2))
