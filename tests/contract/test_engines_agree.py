"""Contract: trained one by one or in a stack, the clients end in the same place.

The two engines do the same operations on each number, but matrix products and sums may add in another order. Each
operation then differs by some 1e-16 of its operands, and a run of 5 rounds of at most 8 steps has a few hundred of
them in sequence, on a smooth model that does not amplify: 1e-12 leaves a margin of ten and catches any real
difference, the smallest of which (one wrong minibatch, a K that is off by one) is of the order 1e-3.
"""

from __future__ import annotations

import pytest
import torch
from every_method import WITH_REFERENCES
from problems import busy, classification

import fedmim
from fedmim.simulation import engines

TOLERANCE = 1e-12
CASES = {
    "a number of steps": {"local_steps": 3, "rounds": 3},
    "all clients, weighed by samples": {"participation": 1.0, "weighting": "samples", "rounds": 3},
    "unequal work": {"work": "uniform:0,2.5,0.8", "rounds": 3},
    "slow clients, cut at the deadline": {"speed_spread": 0.7, "deadline": 0.8, "late": "partial", "local_steps": 6},
    "full batches, neither decay nor clipping": {"batch_size": None, "weight_decay": 0.0, "clip_norm": None},
}

VARIED = ["fedmim", "scaffold", "feddyn", "fedsam", "own: local momentum", "own: state on both sides"]


def finished(name, engine, task=None, **overrides):
    run = fedmim.rounds(WITH_REFERENCES[name], task or classification(), *busy(engine=engine, **overrides))
    return run, list(run)


def assert_close(first, second, tolerance):
    scale = max(1.0, first.abs().max().item())
    assert (first - second).abs().max().item() <= tolerance * scale


def assert_same_run(one, other, tolerance=TOLERANCE):
    (run, records), (other_run, other_records) = one, other
    assert_close(run.params, other_run.params, tolerance)
    for key, slot in run.state.slots.items():
        assert_close(slot, other_run.state.slots[key], tolerance)
    for client in range(7):
        for key, slot in run.server.clients.get(client).items():
            assert_close(slot, other_run.server.clients.get(client)[key], tolerance)
    for record, other_record in zip(records, other_records, strict=True):
        exact = ("round", "lr", "clients", "bytes_up", "bytes_down", "refused", "test_accuracy")
        assert [getattr(record, key) for key in exact] == [getattr(other_record, key) for key in exact]
        for key in ("train_loss", "test_loss", "consistency"):
            value = getattr(other_record, key)  # references have no drift
            assert getattr(record, key) == (None if value is None else pytest.approx(value, rel=1e3 * tolerance))


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_serial_equals_vectorised_for_unequal_clients_some_done_early_with_ragged_batches(name):
    serial, vectorised = (finished(name, engine) for engine in ("serial", "vectorised"))
    assert serial[0].engine == "serial"
    assert vectorised[0].engine == "vectorised"
    assert_same_run(serial, vectorised)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", VARIED)
def test_serial_equals_vectorised_in_other_settings(name, case):
    assert_same_run(*(finished(name, engine, **CASES[case]) for engine in ("serial", "vectorised")))


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_serial_equals_vectorised_in_float32(name):
    task = classification(dtype=torch.float32)
    runs = (finished(name, engine, task, rounds=3)[0] for engine in ("serial", "vectorised"))
    assert_close(*(run.params for run in runs), 1e-4)  # 1e-7 an operation, a thousandfold for their number


@pytest.mark.parametrize("name", VARIED)
def test_a_round_may_be_cut_into_several_stacks(name, monkeypatch):
    whole = finished(name, "vectorised")
    monkeypatch.setattr(engines, "STACK_ELEMENTS", 2 * len(whole[0].params))
    assert_same_run(whole, finished(name, "vectorised"))
    monkeypatch.setattr(engines, "STACK_ELEMENTS", 1)
    assert_same_run(whole, finished(name, "vectorised"))


def test_augmentation_and_preparation_are_the_same_in_both_engines():
    def jitter(x, generator):
        return x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)

    task = classification(augment=jitter, prepare=lambda x: 2 * x)
    plain = finished("fedavg", "serial")
    serial, vectorised = (finished("fedavg", engine, task) for engine in ("serial", "vectorised"))
    assert_same_run(serial, vectorised)
    assert (serial[0].params - plain[0].params).abs().max() > 1e-3
