"""`shape` of a batch is a method, raises, or is no tuple; `len` and truth raise."""

from torch.utils.data import DataLoader


class Method:
    def shape(self):
        return "a method"


class Raises:
    @property
    def shape(self):
        raise ZeroDivisionError("no shape")

    def __len__(self):
        raise ZeroDivisionError("no len")

    def __bool__(self):
        raise ZeroDivisionError("no truth")

    def __eq__(self, other):
        raise ZeroDivisionError("no comparison")

    __hash__ = None


class Text:
    shape = "wide"


class Endless(list):
    def __len__(self):
        return 1 << 40


KINDS = (Method, Raises, Text, Endless)
for workers in (0, 2):
    loader = DataLoader(
        range(8), 1, num_workers=workers, collate_fn=lambda s: KINDS[s[0] % len(KINDS)]()
    )
    print([type(batch).__name__ for batch in loader])
