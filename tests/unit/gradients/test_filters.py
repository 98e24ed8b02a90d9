"""Which parameters of real models are not compressed, and that patterns come first."""

import pytest
import torch

from stoker.gradients.codes import Code
from stoker.gradients.filters import Described, codes_of, described


class Language(torch.nn.Module):
    """A small one; tied: its head is its embedding."""

    def __init__(self, tied=False):
        super().__init__()
        self.head = torch.nn.Linear(64, 500, bias=False)  # registered first
        self.embedding = torch.nn.Embedding(500, 64)
        self.block = torch.nn.TransformerEncoderLayer(64, 4, 128)
        self.last = torch.nn.LayerNorm(64)
        if tied:
            self.head.weight = self.embedding.weight


def codes_by_name(model, patterns=None):
    parameters = described(model)
    codes = codes_of([each for each, _ in parameters], Code.INT4, patterns or {})
    return {each.name: code for (each, _), code in zip(parameters, codes, strict=True)}


def compressed(model, patterns=None):
    return {name for name, code in codes_by_name(model, patterns).items() if code is not Code.FP32}


@pytest.mark.parametrize("tied", [False, True])
def test_of_a_language_model_the_matrices_between_embedding_and_head_are_compressed(tied):
    assert compressed(Language(tied)) == {
        "block.self_attn.in_proj_weight",
        "block.self_attn.out_proj.weight",
        "block.linear1.weight",
        "block.linear2.weight",
    }


def test_of_a_classifier_the_last_layer_is_its_head():
    layers = [torch.nn.Conv2d(3, 32, 5), torch.nn.BatchNorm2d(32), torch.nn.Conv2d(32, 64, 3)]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(64, 100))
    assert compressed(model) == {"0.weight", "2.weight"}


def test_what_is_small_or_has_one_dimension_is_exact():
    layers = [torch.nn.Linear(31, 33), torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)]
    assert compressed(torch.nn.Sequential(*layers)) == {"1.weight"}


def test_a_pattern_decides_before_the_structure_and_the_first_one_that_matches():
    patterns = {"*.bias": Code.BF16, "1.*": Code.INT8, "*": Code.INT4}
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    assert codes_by_name(model, patterns) == {
        "0.weight": Code.INT4,
        "0.bias": Code.BF16,
        "1.weight": Code.INT8,
        "1.bias": Code.BF16,
    }


def test_a_model_without_matrices_is_exact():
    one = Described("scale", (2000,), 0, "other")
    assert codes_of([one], Code.INT4, {}) == [Code.FP32]
