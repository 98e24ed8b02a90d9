"""The loops for accelerators say what the CPU's say, byte for byte: each on whatever is here.

Triton's run on the GPU that there is, else in its interpreter, where Triton is installed.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

HAS_CUDA = torch.cuda.is_available()
if not HAS_CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the loops are declared

from stoker.gradients.blocks import any_device, cpu  # noqa: E402 - after the line above
from stoker.gradients.blocks.layout import NOWHERE, Segment, layout_of  # noqa: E402
from stoker.gradients.codes import Code  # noqa: E402

NUM_RANKS = 3
SEEDS = [np.uint64(0), np.uint64(0x1234_5678_9ABC_DEF1), np.uint64(2**64 - 1)]
LENGTHS = [1, 2, 3, 17, 1023, 1024, 1025, 5000, 4 * 1024]
MANY = 40 * 1024 + 333

COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from stoker.gradients.blocks import cuda

TYPES = {"table": "*i64", "message": "*u8", "received": "*u8", "values": "*fp32", "residuals": "*fp32"}
TYPES |= {"num_ranks": "i32", "nbytes": "i64", "divisor": "fp32", "low": "i64", "high": "i64"}
for loop in (cuda._quantise, cuda._reduce, cuda._dequantise):
    names = loop.arg_names
    for is_random in (False, True) if "is_random" in names else (False,):
        given = {(names.index("is_random"),): is_random} if "is_random" in names else {}
        types = {name: TYPES.get(name, "constexpr") for name in names}
        target = GPUTarget("cuda", int(sys.argv[1]), 32)
        made = triton.compile(ASTSource(loop, types, given), target, cuda._OPTIONS)
        assert made.asm["cubin"] and "fma.rn.f32" not in made.asm["ptx"]
        print(loop.__name__)
"""


def loops_and_device(name):
    if name == "any_device":
        return any_device, torch.device("cuda" if HAS_CUDA else "cpu")
    pytest.importorskip("triton", reason="Triton is not installed")
    from stoker.gradients.blocks import cuda

    return cuda, torch.device("cuda" if HAS_CUDA else "cpu")


class Two:
    """The CPU's loops and others on the same bucket. Each step compares the two, to the byte, or, for
    the codes of a block that is not finite are anybody's, by what their bytes say."""

    def __init__(self, name, segments, by="bytes"):
        self.by, self.length = by, max(each.start + each.length for each in segments)
        self.others, self.device = loops_and_device(name)
        self.layout = layout_of(segments, NUM_RANKS)
        self.shards = [self.layout.shard(rank) for rank in range(NUM_RANKS)]
        self.tables = [self.others.table_of(each, self.device) for each in self.shards]

    def there(self, values, residuals, seed):
        """Messages of all shards, and what is remembered."""
        made = np.zeros((NUM_RANKS, self.layout.message_nbytes), np.uint8)
        other = torch.zeros(made.shape, dtype=torch.uint8, device=self.device)
        remembered = torch.from_numpy(residuals.copy()).to(self.device)
        on_device = torch.from_numpy(values).to(self.device)
        for rank in range(NUM_RANKS):
            cpu.quantise(values, self.shards[rank], made[rank], residuals, seed)
            self.others.quantise(on_device, self.tables[rank], other[rank], remembered, seed)
        for rank in range(NUM_RANKS):
            self.compare(other[rank], made[rank], rank)
        assert_same(remembered, residuals)
        return made

    def added_up(self, received, rank, seed):
        out = np.zeros(self.layout.message_nbytes, np.uint8)
        other = torch.zeros(out.shape, dtype=torch.uint8, device=self.device)
        given = torch.from_numpy(received).to(self.device).flatten()
        table, divisor = self.tables[rank], np.float32(NUM_RANKS)
        cpu.reduce(received.ravel(), NUM_RANKS, self.shards[rank], divisor, out, seed)
        self.others.reduce(given, NUM_RANKS, table, divisor, other, seed)
        self.compare(other, out, rank)
        return out

    def compare(self, other, message, rank):
        if self.by == "bytes":
            return assert_same(other, message)
        said = np.zeros((2, self.length), np.float32)
        cpu.dequantise(message, self.shards[rank], said[0])
        cpu.dequantise(other.cpu().numpy(), self.shards[rank], said[1])
        return assert_same(torch.from_numpy(said[1]), said[0])

    def back(self, message, rank):
        values = np.zeros(self.length, np.float32)
        other = torch.zeros(self.length, device=self.device)
        cpu.dequantise(message, self.shards[rank], values)
        self.others.dequantise(torch.from_numpy(message).to(self.device), self.tables[rank], other)
        assert_same(other, values)


def assert_same(tensor, array):
    """To the bit; but NaN is NaN, whatever it carries."""
    found = tensor.cpu().numpy()
    assert np.array_equal(found, array, equal_nan=found.dtype != np.uint8)


def drawn(length, seed=0):
    generator = np.random.default_rng(seed)
    scale = np.float32(10.0) ** generator.integers(-6, 6, length).astype(np.float32)
    return generator.standard_normal(length).astype(np.float32) * scale


def check_whole_way(name, segments, gradients, *, seed, memory=0):
    two = Two(name, segments)
    residuals = np.zeros(memory, np.float32)
    messages = []
    for values in gradients:
        messages.append(two.there(values, residuals, seed))
    for rank in range(NUM_RANKS):
        received = np.stack([each[rank] for each in messages])
        two.back(two.added_up(received, rank, seed), rank)


@pytest.mark.cover(2)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("name", ["any_device", "cuda"])
def test_every_length_has_the_cpus_bytes(name, code, seed):
    for length in LENGTHS:
        gradients = [drawn(length, number) for number in range(NUM_RANKS)]
        check_whole_way(name, [Segment(0, length, code)], gradients, seed=seed)


@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("name", ["any_device", "cuda"])
def test_parameters_of_many_codes_and_what_is_remembered(name, seed):
    segments, start, memory = [], 0, 0
    for length, code in [
        (5000, Code.INT4),
        (7, Code.FP32),
        (2049, Code.INT8),
        (1024, Code.BF16),
    ] * 2:
        remembers = code in (Code.INT4, Code.INT8)
        segments.append(Segment(start, length, code, memory if remembers else NOWHERE))
        start, memory = start + length, memory + length * remembers
    gradients = [drawn(start, number) for number in range(NUM_RANKS)]
    check_whole_way(name, segments, gradients, seed=seed, memory=memory)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of Triton's interpreter
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("name", ["any_device", "cuda"])
def test_what_is_not_finite_and_what_is_tiny(name, code, bad):
    gradients = [drawn(3000, number) for number in range(NUM_RANKS)]
    gradients[1][1500] = bad
    gradients[0][2048:] = 0
    gradients[2][:] = np.float32(1e-41)
    segments = [Segment(0, 3000, code, 0)]
    two = Two(name, segments, by="values")
    residuals = np.zeros(3000, np.float32)
    messages = np.stack([two.there(values, residuals, SEEDS[1]) for values in gradients])
    for rank in range(NUM_RANKS):
        message = two.added_up(messages[:, rank].copy(), rank, SEEDS[1])
        two.back(message, rank)


@pytest.mark.full
@pytest.mark.parametrize("capability", [80, 90])
def test_the_loops_compile_for_gpus_that_are_not_here(capability, tmp_path):
    """In a process of its own: here they may be the interpreter's."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environ = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, str(capability)]
    environ["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["_quantise"] * 2 + ["_reduce"] * 2 + ["_dequantise"]


def test_runs_are_as_few_as_there_are():
    layout = layout_of([Segment(0, MANY, Code.INT4, 0), Segment(MANY, 2048, Code.INT4)], 1)
    runs = any_device.table_of(layout.blocks, torch.device("cpu"))
    assert [(run.num, run.length) for run in runs] == [(40, 1024), (1, 333), (2, 1024)]
