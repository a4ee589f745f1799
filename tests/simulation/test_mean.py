"""The streaming mean: the plain mean, in the promised order, in memory that does not grow; and the consistency."""

from __future__ import annotations

import gc

import pytest
import torch
from problems import busy, classification, seeded

import fedmim
from fedmim.simulation.mean import StreamingMean


def uploads(count, d, dtype=torch.float64, seed=0):
    return torch.randn(count, d, generator=seeded(seed), dtype=torch.float64).to(dtype)


def streamed(vectors, weights=None, reference=None):
    mean = StreamingMean({} if reference is None else {"params": reference})
    for i, vector in enumerate(vectors):
        mean.add(1.0 if weights is None else weights[i], {"params": vector})
    return mean


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40])
def test_it_is_the_plain_mean(count):
    vectors, reference = uploads(count, 50), uploads(1, 50, seed=1)[0]
    mean = streamed(vectors, reference=reference)
    torch.testing.assert_close(mean.mean()["params"], vectors.mean(0), rtol=1e-13, atol=1e-14)
    assert mean.clients == count
    assert mean.weight == count


def test_it_weighs():
    vectors, weights = uploads(20, 50), [float(1 + i % 5) for i in range(20)]
    expected = torch.tensor(weights, dtype=torch.float64) @ vectors / sum(weights)
    torch.testing.assert_close(streamed(vectors, weights).mean()["params"], expected, rtol=1e-13, atol=1e-14)


def test_it_has_the_bits_of_sums_in_blocks_of_sixteen():
    vectors, reference = uploads(50, 1000), uploads(1, 1000, seed=1)[0]
    changes = vectors - reference
    blocks = []
    for start in range(0, 50, 16):
        block = torch.zeros(1000, dtype=torch.float64)
        for change in changes[start : start + 16]:
            block = block + change
        blocks.append(block)
    total = blocks[0]
    for block in blocks[1:]:
        total = total + block
    assert torch.equal(streamed(vectors, reference=reference).mean()["params"], total / 50 + reference)
    one_by_one = torch.zeros(1000, dtype=torch.float64)
    for change in changes:
        one_by_one = one_by_one + change
    assert not torch.equal(one_by_one, total)  # the order shows in the bits


def test_it_keeps_every_named_vector_in_its_type():
    mean = StreamingMean({"params": torch.zeros(3)})
    for value in (1.0, 2.0, 6.0):
        mean.add(1.0, {"params": torch.full((3,), value), "other": torch.full((2,), 2 * value, dtype=torch.float64)})
    means = mean.mean()
    assert torch.equal(means["params"], torch.full((3,), 3.0))
    assert torch.equal(means["other"], torch.full((2,), 6.0, dtype=torch.float64))
    assert means["params"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_it_changes_neither_the_uploads_nor_the_reference(dtype):
    vectors, reference = uploads(20, 50, dtype), uploads(1, 50, dtype, seed=1)[0]
    before, reference_before = vectors.clone(), reference.clone()
    mean = streamed(vectors, reference=reference)
    mean.mean()
    mean.consistency()
    assert torch.equal(vectors, before)
    assert torch.equal(reference, reference_before)


def live_vectors(d):
    return sum(1 for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.shape == (d,))


def test_it_holds_at_most_two_accumulators_however_many_clients_come():
    d = 1013
    mean, before = StreamingMean({}), live_vectors(d)
    for client in range(1, 71):
        mean.add(1.0, {"params": uploads(1, d, seed=client)[0]})
        if client in (1, 16, 17, 40, 70):
            assert live_vectors(d) - before <= 2


def test_the_round_loop_holds_no_more_vectors_for_forty_clients_than_for_four():
    held = []

    class Counting(fedmim.FedAvg):
        def finish(self, w, local):
            held.append(live_vectors(len(w)) if len(held) % 4 == 3 else 0)  # counting is slow
            return super().finish(w, local)

    peaks = []
    for clients in (4, 40):
        protocol = busy(participation=1.0, rounds=1, local_steps=1, engine="serial")
        held.clear()
        fedmim.simulate(Counting(), classification((3,) * clients), *protocol)
        assert len(held) == clients
        peaks.append(max(held))
    assert peaks[1] <= peaks[0] + 1  # one more once a block of sixteen has been closed


@pytest.mark.parametrize("weights", [None, [float(1 + i) for i in range(20)]])
def test_consistency_is_the_mean_square_distance_to_the_mean(weights):
    vectors = uploads(20, 70_000)  # longer than one chunk
    share = torch.tensor(weights or [1.0] * 20, dtype=torch.float64) / sum(weights or [1.0] * 20)
    mean = share @ vectors
    expected = (share * (vectors - mean).square().sum(1)).sum().item()
    measured = streamed(vectors, weights, uploads(1, 70_000, seed=1)[0]).consistency()
    assert measured == pytest.approx(expected, rel=1e-12)


def test_consistency_is_right_where_float32_models_differ_by_a_millionth():
    d = 1000
    start = uploads(1, d, torch.float32, seed=1)[0]
    common = start + 0.01 * uploads(1, d, torch.float32, seed=2)[0]
    vectors = common * (1 + 1e-6 * uploads(12, d, torch.float32, seed=3))
    exact = vectors.double()
    expected = (exact - exact.mean(0)).square().sum(1).mean().item()
    assert expected == pytest.approx(d * 1e-12, rel=0.5)  # as small as intended
    assert streamed(vectors, reference=start).consistency() == pytest.approx(expected, rel=1e-6)
    in_float32 = (vectors.square().sum(1).mean() - vectors.mean(0).square().sum()).item()
    assert in_float32 != pytest.approx(expected, rel=0.5)  # the trap


def test_equal_models_are_consistent_never_less_than_zero():
    vector = uploads(1, 100)[0]
    assert 0 <= streamed([vector] * 5, reference=uploads(1, 100, seed=1)[0]).consistency() < 1e-12
