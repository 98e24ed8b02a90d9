"""Decides which parameters stay uncompressed: by their role in the model, not by their name.

A few thousand numbers decide much of a model's output: biases, norms, embeddings and the output
head. They are few, and so they are not compressed unless the user says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch.nn.modules.batchnorm import _NormBase

from stoker.gradients.codes import NAMES, Code
from stoker.gradients.gate import Sent

ROUNDING_SEED = 20_211_108  # any; the same in every run
_KINDS: dict[str, tuple[type[torch.nn.Module], ...]] = {
    "norm": (_NormBase, torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.RMSNorm),
    "embedding": (torch.nn.Embedding, torch.nn.EmbeddingBag),
}

FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # gradients of others are left to DDP
MIN_LEN = 1024  # elements; below it there is nothing to save


class Described(NamedTuple):
    """A parameter. name: as in `named_parameters`; owner: the module that holds it, by number in
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
    """Return the codes: of the first pattern a name matches (`fnmatch`), else `code` or FP32."""
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
    """Return why a parameter should not be compressed; empty if nothing speaks against it."""
    if len(parameter.shape) < 2:
        return "one dimension"
    if parameter.kind != "other":
        return parameter.kind
    return f"under {MIN_LEN:,} elements" if parameter.length < MIN_LEN else ""


def _heads(parameters: Sequence[Described]) -> set[int]:
    """Return the modules that give the output: those whose matrix has an embedding's shape, for
    they map back to its vocabulary; if there are none, the last one that has a matrix."""
    matrices = [parameter for parameter in parameters if not why_exact(parameter)]
    vocabularies = {p.shape for p in parameters if p.kind == "embedding"}
    heads = {p.owner for p in matrices if p.shape in vocabularies}
    return heads or {max((p.owner for p in matrices), default=-1)}


@dataclass(frozen=True, slots=True)
class Coding:
    """Says how each parameter of a model is compressed. codes: by the parameter's id.

    memory: where each one's residual begins, by id; num: elements of all residuals. seed: of
    stochastic rounding; None: to nearest.
    """

    codes: dict[int, Code]
    memory: dict[int, int] = field(default_factory=dict)
    num: int = 0
    seed: int | None = None


def described(model: torch.nn.Module) -> list[tuple[Described, torch.nn.Parameter]]:
    """List each parameter of each module: a shared one once for every module that holds it."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = []
    for number, module in enumerate(model.modules()):
        kind = next((kind for kind, kinds in _KINDS.items() if isinstance(module, kinds)), "other")
        for parameter in module.parameters(recurse=False):
            name, shape = names[id(parameter)], tuple(parameter.shape)
            found.append((Described(name, shape, number, kind), parameter))
    return found


def coding_of(model: torch.nn.Module, scheme: str, patterns: Mapping[str, str]) -> Coding:
    name, _, feedback = scheme.partition("+")
    found = described(model)
    given = {pattern: NAMES[code] for pattern, code in patterns.items()}
    chosen = codes_of([each for each, _ in found], NAMES.get(name, min(Code)), given)
    codes: dict[int, Code] = {}
    memory, num = {}, 0
    for (_, parameter), code in zip(found, chosen, strict=True):  # a shared one: the least lossy
        codes[id(parameter)] = max(code, codes.get(id(parameter), code))
    for parameter in model.parameters():
        if feedback and codes[id(parameter)] is not Code.FP32:
            memory[id(parameter)], num = num, num + parameter.numel()
    return Coding(codes, memory, num, None if feedback else ROUNDING_SEED)


def unmatched(model: torch.nn.Module, patterns: Iterable[str]) -> list[str]:
    """Return the patterns that match no parameter's name."""
    names = [name for name, _ in model.named_parameters()]
    return [each for each in patterns if not any(fnmatchcase(name, each) for name in names)]


def sent_of(model: torch.nn.Module) -> Sent:
    """Return what 4 bits would leave of a model's gradients. frac: 1 if none can be compressed."""
    coding = coding_of(model, "4bit", {})
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    raw = sum(8 * parameter.nbytes for parameter in parameters)
    coded = sum(
        parameter.numel() * coding.codes[id(parameter)]
        if parameter.dtype in FLOATS
        else 8 * parameter.nbytes
        for parameter in parameters
    )
    device = parameters[0].device.type
    return Sent(sum(p.numel() for p in parameters), min(1.0, coded / raw), device)
