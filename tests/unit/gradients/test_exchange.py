"""Averages over ranks that are threads of this process, over gloo: the same bits on all of them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from stoker.gradients import buckets
from stoker.gradients.blocks import any_device
from stoker.gradients.codes import BLOCK_LEN, Code
from stoker.gradients.exchange import Exchange
from stoker.gradients.filters import Coding
from stoker.gradients.on_stream import OnStream

PATIENCE_S = 60.0
LEVELS = {Code.INT4: 7, Code.INT8: 127}
SIZES = [1, 15, 16, 17, 1023, 1024, 1025, 7919, 104_729]


def on_stream(group, coding):
    return OnStream(group, coding, None, torch.device("cpu"))


class Ranks:
    """As many exchanges as there are ranks, each with its group."""

    def __init__(self, make, num, codes_by_length, *, feedback=False, seed=None):
        store = dist.HashStore()
        self.parameters = [
            [torch.nn.Parameter(torch.zeros(length)) for length, _ in codes_by_length]
            for _ in range(num)
        ]
        self.exchanges = []
        with ThreadPoolExecutor(num) as pool:
            groups = list(
                pool.map(
                    lambda rank: dist.ProcessGroupGloo(
                        store, rank, num, timedelta(seconds=PATIENCE_S)
                    ),
                    range(num),
                )
            )
        for rank in range(num):
            own = self.parameters[rank]
            codes = {id(p): code for p, (_, code) in zip(own, codes_by_length, strict=True)}
            memory, total = {}, 0
            for parameter in own if feedback else ():
                memory[id(parameter)], total = total, total + parameter.numel()
            self.exchanges.append(make(groups[rank], Coding(codes, memory, total, seed)))

    def average(self, buffers):
        """In place. Returns the futures' values."""
        return self.wait(self.begin(buffers))

    def begin(self, buffers, chosen=slice(None), is_first=True):
        parameters = [each[chosen] for each in self.parameters]
        with ThreadPoolExecutor(len(buffers)) as pool:  # each rank has a training loop of its own
            begun = [
                pool.submit(exchange.exchange, *each, is_first)
                for exchange, *each in zip(self.exchanges, parameters, buffers, strict=True)
            ]
        return [each.result() for each in begun]

    @staticmethod
    def wait(futures):
        with ThreadPoolExecutor(len(futures)) as pool:
            return list(pool.map(lambda future: future.wait(), futures))

    def close(self):
        for exchange in self.exchanges:
            exchange.close()
        self.exchanges.clear()


@pytest.fixture(params=[Exchange, on_stream], ids=["own thread", "on stream"])
def ranks(request, monkeypatch):
    """On a stream: as on an accelerator, on this CPU: torch's own operations, one bucket at a time."""
    made = []
    if request.param is on_stream:
        monkeypatch.setattr(buckets, "loops_for", lambda device: any_device)

    def make(*args, **kwargs):
        made.append(Ranks(request.param, *args, **kwargs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def drawn(num, length, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(length, generator=generator).to(dtype) for _ in range(num)]


def digests(buffers):
    return {hashlib.sha256(b.view(torch.uint8).numpy().tobytes()).hexdigest() for b in buffers}


def largest_of_blocks(values):
    values = np.abs(values)
    starts = range(0, len(values), BLOCK_LEN)
    each = [
        np.full(len(values[s : s + BLOCK_LEN]), values[s : s + BLOCK_LEN].max()) for s in starts
    ]
    return np.concatenate(each)


@pytest.mark.cover(2)
@pytest.mark.parametrize("seed", [None, 3], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("num", [1, 2, 3, 4])
@pytest.mark.parametrize("code", Code)
def test_all_ranks_end_alike_within_the_bound_of_two_roundings(ranks, code, num, seed):
    one = ranks(num, [(size, code) for size in SIZES], seed=seed)
    for number, size in enumerate(SIZES):
        buffers = drawn(num, size)
        before = [buffer.numpy().copy() for buffer in buffers]
        results = one.wait(one.begin(buffers, slice(number, number + 1)))
        for result, buffer in zip(results, buffers, strict=True):
            assert result.data_ptr() == buffer.data_ptr()
        assert len(digests(buffers)) == 1
        exact = np.mean([each.astype(np.float64) for each in before], axis=0)
        error = np.abs(buffers[0].numpy() - exact)
        if code in LEVELS:
            steps = (0.5 if seed is None else 1.0) / LEVELS[code]
            first = np.mean([largest_of_blocks(each) for each in before], axis=0) * steps
            second = (largest_of_blocks(exact) + largest_of_blocks(first)) * steps
            assert (error <= (first + second) * 1.001).all()
        else:
            bits = {Code.BF16: 8, Code.FP32: 24}[code]
            most = np.max([np.abs(each) for each in before], axis=0)
            assert (error <= 4 * most * 2.0**-bits).all()


@pytest.mark.parametrize("num", [1, 2, 3, 4])
@pytest.mark.parametrize("code", Code)
def test_zeros_and_constants_are_exact(ranks, code, num):
    for value in (0.0, 1.0, -0.75):
        buffers = [torch.full((3001,), value) for _ in range(num)]
        ranks(num, [(3001, code)]).average(buffers)
        assert all((buffer == value).all() for buffer in buffers)


@pytest.mark.cover(2)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("code", Code)
def test_what_is_not_finite_on_one_rank_is_not_on_any(ranks, code, dtype, bad):
    buffers = drawn(3, 5000, dtype)
    buffers[1][4321] = bad
    ranks(3, [(5000, code)]).average(buffers)
    assert not any(buffer[4321].isfinite() for buffer in buffers)
    assert all(buffer[:4096].isfinite().all() for buffer in buffers)
    assert len(digests(buffers)) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 1001, 4096])
def test_16_bit_gradients_are_averaged_in_fp32(ranks, dtype, length):
    buffers = drawn(4, length, dtype)
    expected = (torch.stack([b.float() for b in buffers]).sum(0) / 4).to(dtype)
    ranks(4, [(length, Code.FP32)]).average(buffers)
    assert len(digests(buffers)) == 1
    assert torch.allclose(buffers[0].float(), expected.float(), rtol=2**-7, atol=1e-6)


@pytest.mark.full
def test_sixty_million_elements(ranks):
    length = 60_000_000
    buffers = [torch.arange(length, dtype=torch.float32).fmod_(1000 + rank) for rank in range(2)]
    exact = (buffers[0] + buffers[1]) / 2
    ranks(2, [(length, Code.INT4)]).average(buffers)
    assert torch.equal(buffers[0], buffers[1])
    assert (buffers[0] - exact).abs().max() <= 2 * 1001 / 7 / 2 * 1.001


def test_a_sum_that_overflows_is_not_finite(ranks):
    buffers = [torch.full((2048,), 3e38) for _ in range(4)]
    ranks(4, [(2048, Code.INT8)]).average(buffers)
    assert not any(buffer.isfinite().any() for buffer in buffers)


def test_buckets_that_come_before_the_last_is_done_are_exchanged_in_their_order(ranks):
    lengths = [(5000, Code.INT4), (70_000, Code.INT8), (33, Code.FP32)]
    one = ranks(3, lengths)
    for _ in range(4):
        buffers = [drawn(3, length) for length, _ in lengths]
        expected = [torch.stack(each).mean(0) for each in buffers]
        futures = [
            one.begin(each, slice(i, i + 1), is_first=i == 0) for i, each in enumerate(buffers)
        ]
        for each in reversed(futures):
            one.wait(each)
        for each, exact in zip(buffers, expected, strict=True):
            assert len(digests(each)) == 1
            assert (each[0] - exact).abs().max() < 1.0


def test_residuals_follow_their_parameters_into_other_buckets(ranks):
    """A rebuilt bucket holds its parameters in another order; what was not sent is not lost."""
    lengths = [(3000, Code.INT4), (2000, Code.INT4)]
    together, apart = ranks(2, lengths, feedback=True), ranks(2, lengths, feedback=True)
    sums = []
    for one in (together, apart):
        total = [torch.zeros(3000), torch.zeros(2000)]
        for step in range(16):
            first, second = drawn(2, 3000), drawn(2, 2000)
            if one is together or step < 5:
                both = [torch.cat(each) for each in zip(first, second, strict=True)]
                one.average(both)
                parts = both[0].split([3000, 2000])
            else:
                one.wait(one.begin(second, slice(1, 2)))
                one.wait(one.begin(first, slice(0, 1)))
                parts = first[0], second[0]
            total = [t + part for t, part in zip(total, parts, strict=True)]
        sums.append(total)
    exact = [torch.stack(drawn(2, length)).mean(0) for length, _ in lengths]
    for total in sums:
        for found, expected in zip(total, exact, strict=True):
            assert (found / 16 - expected).abs().max() < 0.35  # a step of 4 bits is 0.5 here


def test_a_buckets_messages_lie_where_they_lay_before(ranks):
    one = ranks(2, [(100_000, Code.INT4)])
    buffers = drawn(2, 100_000)
    one.average(buffers)
    kept = [id(bucket) for e in one.exchanges for bucket in e._buckets._known.values()]
    places = [b.sent.data_ptr() for e in one.exchanges for b in e._buckets._known.values()]
    for _ in range(3):
        one.average(buffers)
    assert kept == [id(bucket) for e in one.exchanges for bucket in e._buckets._known.values()]
    assert places == [b.sent.data_ptr() for e in one.exchanges for b in e._buckets._known.values()]


def test_what_is_counted_is_the_formula(ranks):
    one = ranks(4, [(1_000_000, Code.INT4)])
    one.average(drawn(4, 1_000_000))
    counts = one.exchanges[0].counts
    assert counts.wire_nbytes == pytest.approx(
        2 * 3 / 4 * 4e6 * (4 + 32 / BLOCK_LEN) / 32, rel=0.02
    )
    assert counts.raw_nbytes == 2 * 3 * 1_000_000
    assert counts.num_buckets == 1


def test_an_error_of_the_group_is_the_futures_and_all_later_ones(ranks):
    class Broken:
        size, rank = staticmethod(lambda: 2), staticmethod(lambda: 0)

        def alltoall_base(self, *_):
            raise RuntimeError("connection closed by peer")

    parameters = [torch.nn.Parameter(torch.zeros(10))]
    exchange = Exchange(Broken(), Coding({id(parameters[0]): Code.FP32}))
    futures = [exchange.exchange(parameters, torch.zeros(10), is_first=i == 0) for i in range(3)]
    for future in futures:
        with pytest.raises(RuntimeError, match="connection closed by peer"):
            future.wait()
    exchange.close()
