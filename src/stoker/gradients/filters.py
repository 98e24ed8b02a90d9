"""Which parameters travel as they are: by what they are in the model, not by what they are called.

A few thousand numbers decide much of what a model gives: biases, norms, embeddings and the output
head. They are few, and so they are not compressed unless the user says so.
Pure: standard library only.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from stoker.gradients.codes import Code

MIN_LEN = 1024  # elements; below it there is nothing to save


class Described(NamedTuple):
    """One parameter. name: as in `named_parameters`; owner: the module that holds it, by number in
    the order of registration; kind: of that module: "embedding", "norm" or "other"."""

    name: str
    shape: tuple[int, ...]
    owner: int
    kind: str

    @property
    def length(self) -> int:
        length = 1
        for size in self.shape:
            length *= size
        return length


def codes_of(
    parameters: Sequence[Described], code: Code, patterns: Mapping[str, Code]
) -> list[Code]:
    """The code of each: of the first pattern that its name matches (`fnmatch`), else `code` or FP32."""
    heads = _heads(parameters)
    codes = []
    for parameter in parameters:
        said = [
            given for pattern, given in patterns.items() if fnmatchcase(parameter.name, pattern)
        ]
        is_exact = bool(why_exact(parameter)) or parameter.owner in heads
        codes.append(said[0] if said else Code.FP32 if is_exact else code)
    return codes


def why_exact(parameter: Described) -> str:
    """Empty where nothing speaks against compressing it."""
    if len(parameter.shape) < 2:
        return "one dimension"
    if parameter.kind != "other":
        return parameter.kind
    return f"under {MIN_LEN:,} elements" if parameter.length < MIN_LEN else ""


def _heads(parameters: Sequence[Described]) -> set[int]:
    """Modules that give the output: those whose matrix has an embedding's shape, for they turn back
    into its vocabulary; where there are none, the last one that has a matrix."""
    matrices = [parameter for parameter in parameters if not why_exact(parameter)]
    vocabularies = {p.shape for p in parameters if p.kind == "embedding"}
    heads = {p.owner for p in matrices if p.shape in vocabularies}
    return heads or {max((p.owner for p in matrices), default=-1)}
