"""Exceptions with a cause, a context, notes, and attributes of their own, as the trainer sees them."""

from torch.utils.data import DataLoader, Dataset


class Chained(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        try:
            {}["missing"]
        except KeyError as error:
            if index == 0:
                raise ValueError("with a cause") from error
            if index == 1:
                raise ValueError("with a context") from None
            new = ValueError("with notes")
            new.add_note("a note")
            new.mine = 5
            raise new  # noqa: B904


for workers in (0, 1):
    iterator = iter(DataLoader(Chained(), None, num_workers=workers))
    for _ in range(3):
        try:
            next(iterator)
        except ValueError as error:
            lines = [
                line for line in str(error).splitlines() if not line.startswith(("  ", "    "))
            ]
            print(lines, error.__cause__, error.__context__, getattr(error, "mine", None))
