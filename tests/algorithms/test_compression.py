"""Compressed uploads: what arrives, what stays with the client, and the bytes, counted by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from every_method import EVERY_METHOD, Everything
from problems import Quadratics, busy, classification, quadratic_protocol, seeded
from worker_runs import assert_same_bits, finished

import fedmim
from fedmim.algorithms import METHODS
from fedmim.simulation.randomness import upload_numbers
from fedmim.simulation.wire import Idle

D = 4 * 5 + 5 + 5 * 3 + 3  # the parameters of the network in problems.py
COMPRESSED = {
    "fedavg+topk": fedmim.TopK(fedmim.FedAvg(), fraction=0.1),
    "scaffold+topk": fedmim.TopK(fedmim.Scaffold(), fraction=0.3),
    "fedmim+topk": fedmim.TopK(fedmim.FedMIM(), fraction=0.3),
    "fedavg+quantise": fedmim.Quantise(fedmim.FedAvg(), bits=4),
    "feddyn+quantise+leap": fedmim.Leap(fedmim.Quantise(fedmim.FedDyn(), bits=6, bucket=10), alpha=(0.3,)),
    "mimelite+quantise": fedmim.Quantise(fedmim.MimeLite()),
}


@dataclass(frozen=True)
class Noting(fedmim.FedAvg):
    """FedAvg that notes what the clients' steps give, before compression, and what arrives."""

    title: ClassVar[str] = "noting"

    def finish(self, w, local):
        ARRIVED.append((w - local.down["params"]).clone())
        return super().finish(w, local)


@dataclass(frozen=True)
class NotingTopK(fedmim.TopK):
    def finish(self, w, local):
        CHANGES.append((w - local.down["params"]).clone())
        return super().finish(w, local)


ARRIVED: list[torch.Tensor] = []
CHANGES: list[torch.Tensor] = []


def test_what_was_sent_and_the_residual_add_up_to_all_changes():
    ARRIVED.clear(), CHANGES.clear()
    run = fedmim.rounds(NotingTopK(Noting(), fraction=0.1), classification((9,)), *busy(rounds=6, engine="serial"))
    ARRIVED.clear(), CHANGES.clear()  # of the check of the method
    list(run)
    assert len(ARRIVED) == len(CHANGES) == 6
    assert {int((each != 0).sum()) for each in ARRIVED} == {5}  # ceil(0.1 * 43)
    residual = run.server.clients.get(0)["residual"]
    assert residual.abs().max() > 1e-3
    torch.testing.assert_close(sum(ARRIVED) + residual, sum(CHANGES), rtol=1e-12, atol=1e-13)


def test_the_largest_entries_are_sent():
    local = fedmim.Local({"params": torch.ones(5)}, {"residual": torch.tensor([0.0, 0.0, 4.0, 0.0, 0.0])}, 0.1, 1.0)
    w = torch.tensor([1.5, -2.0, 0.0, 1.0, 3.0])  # changes with the residual: 0.5, -3, 3 and 0, 2
    upload, kept = fedmim.TopK(fedmim.FedAvg(), fraction=0.4).finish(w, local)
    assert upload["params"].tolist() == [1.0, -2.0, 4.0, 1.0, 1.0]
    assert kept["residual"].tolist() == [0.5, 0.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedmim", "feddyn", "mimelite", "fedadam"])
def test_all_entries_are_the_inner_method(name):
    plain, whole = (
        fedmim.simulate(method, classification(), *busy(engine="serial"))
        for method in (EVERY_METHOD[name], fedmim.TopK(EVERY_METHOD[name], fraction=1.0))
    )
    assert torch.equal(plain.params, whole.params)
    assert [each.bytes_up for each in plain.history] == [each.bytes_up for each in whole.history]


def test_quantisation_has_no_bias_and_the_variance_of_the_paper():
    method, change = fedmim.Quantise(fedmim.FedAvg(), bits=3, bucket=20), torch.randn(50, generator=seeded(1)).double()
    draws = torch.stack([method.rounded(change, upload_numbers(0, t, 7, change)) for t in range(4000)])
    norms = torch.stack([part.norm() for part in change.split(20)]).repeat_interleave(20)[:50]
    spacing = norms / 3  # s = 2^2 - 1
    levels = draws / spacing
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-9)
    assert ((draws - change).abs() <= spacing).all()
    place = (change.abs() / spacing).frac()
    deviation = spacing * (place * (1 - place)).sqrt()  # of one draw, by hand
    assert ((draws.mean(0) - change).abs() <= 5 * deviation / math.sqrt(4000)).all()
    for part, got in zip(change.split(20), (draws - change).split(20, dim=1), strict=True):
        bound = min(len(part) / 9, math.sqrt(len(part)) / 3) * part.norm() ** 2  # Lemma 3.1
        assert got.square().sum(1).mean() <= 1.05 * bound


def test_a_zero_change_arrives_as_zero():
    zero = torch.zeros(7)
    assert torch.equal(fedmim.Quantise(fedmim.FedAvg()).rounded(zero, torch.full((7,), 0.99)), zero)


@pytest.mark.parametrize(
    ("method", "bytes_up"),
    [
        (fedmim.TopK(fedmim.FedAvg(), fraction=0.1), 5 * (4 + 4)),  # ceil(4.3) values and indices
        (fedmim.TopK(fedmim.FedAvg(), fraction=0.9), D * 4),  # less than 39 values with indices
        (fedmim.TopK(fedmim.MimeLite(), fraction=0.1), 5 * (4 + 4) + D * 4),  # and the whole full gradient
        (fedmim.Quantise(fedmim.FedAvg(), bits=8), D + 4),
        (fedmim.Quantise(fedmim.FedAvg(), bits=3, bucket=10), 17 + 5 * 4),  # ceil(43 * 3 / 8) bytes, 5 buckets
        (fedmim.Leap(fedmim.Quantise(fedmim.FedAvg(), bits=8)), D + 4),
    ],
    ids=repr,
)
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_the_ledger_counts_what_would_be_sent(method, bytes_up, engine):
    result = fedmim.simulate(method, classification(dtype=torch.float32), *busy(rounds=2, engine=engine))
    assert [record.bytes_up for record in result.history] == [4 * bytes_up] * 2  # 4 clients


@pytest.mark.parametrize("name", ["scaffold+topk", "feddyn+quantise+leap"])
def test_processes_equal_serial_bit_for_bit(name):
    runs = [finished(COMPRESSED[name], classification(), engine=engine) for engine in ("serial", "processes")]
    assert_same_bits(*runs)


@pytest.mark.parametrize("name", COMPRESSED)
def test_serial_equals_vectorised(name):
    serial, stacked = (
        finished(COMPRESSED[name], classification(), engine=each)[0] for each in ("serial", "vectorised")
    )
    torch.testing.assert_close(stacked.params, serial.params, rtol=1e-11, atol=1e-12)
    other, _ = finished(COMPRESSED[name], classification(), engine="serial", seed=1)
    assert (other.params - stacked.params).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["scaffold+topk", "feddyn+quantise+leap"])
def test_a_resumed_run_has_the_same_bits(name, tmp_path):
    settings, execution = busy(rounds=4)
    whole, first = (
        fedmim.rounds(COMPRESSED[name], classification(), settings, execution, folder=folder)
        for folder in (None, tmp_path)
    )
    list(whole), next(first), next(first)
    first.save()
    second = fedmim.rounds(COMPRESSED[name], classification(), settings, execution, folder=tmp_path, resume=True)
    list(second)
    assert torch.equal(second.params, whole.params)


def far_from_optimum(method, **changes):
    problem = Quadratics.draw()
    protocol = quadratic_protocol(participation=1.0, local_steps=1, rounds=400, lr=0.2, **changes)
    return (fedmim.simulate(method, problem.task(), *protocol).params - problem.optimum).norm().item()


def test_with_error_feedback_one_entry_of_three_is_enough_to_come_near_the_optimum():
    """With one local step, the error of the residuals is of the order of the learning rate; it falls with it."""
    far = [far_from_optimum(fedmim.TopK(fedmim.FedAvg(), fraction=0.3), lr_decay=decay) for decay in (1.0, 0.98)]
    assert far[0] < 0.5
    assert far[1] < 0.1 * far[0]


def test_quantised_scaffold_reaches_the_optimum_because_changes_and_with_them_the_noise_vanish():
    settings = quadratic_protocol(participation=1.0, rounds=400, lr=0.05)
    problem = Quadratics.draw()
    result = fedmim.simulate(fedmim.Quantise(fedmim.Scaffold(), bits=8), problem.task(), *settings)
    assert (result.params - problem.optimum).norm() < 1e-6


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda: fedmim.TopK(fedmim.FedAvg(), fraction=0.0), "^fraction: must be above 0"),
        (lambda: fedmim.TopK(fedmim.FedAvg(), fraction=1.1), "^fraction: must be above 0"),
        (lambda: fedmim.Quantise(fedmim.FedAvg(), bits=1), "^bits: must be between 2 and 16"),
        (lambda: fedmim.Quantise(fedmim.FedAvg(), bucket=0), "^bucket: must be at least 1"),
        (lambda: fedmim.TopK(fedmim.Quantise(fedmim.FedAvg())), "is already compressed"),
        (lambda: fedmim.TopK(fedmim.Leap(fedmim.Quantise(fedmim.FedAvg()))), "is already compressed"),
        (lambda: fedmim.TopK(fedmim.FedSpeed()), "^topk: FedSpeed uploads something else"),
        (
            lambda: fedmim.Quantise(fedmim.Leap(fedmim.FedLESAM())),
            r"^quantise: FedLESAM \+ leap uploads something else",
        ),
    ],
)
def test_what_cannot_be_compressed_is_rejected(wrap, message):
    with pytest.raises(ValueError, match=message):
        wrap()


@pytest.mark.parametrize("wrapper", [fedmim.TopK, fedmim.Quantise])
def test_an_own_method_that_uploads_something_else_is_rejected_before_the_first_round(wrapper):
    with pytest.raises(ValueError, match="everything: uploads something else than its model"):
        fedmim.rounds(wrapper(Everything()), classification(), *busy())


@pytest.mark.parametrize("name", METHODS)
def test_built_in_methods_declare_whether_they_upload_their_model(name):
    w = torch.ones(3)
    method = METHODS[name]()
    local = Idle(method.broadcast(method.init(0 * w)), dict.fromkeys(method.client_slots, 2 * w), 0.1, 1.0)
    local.carry = method.plan(local).carry
    assert (method.finish(w, local)[0]["params"] is w) == method.uploads_model
