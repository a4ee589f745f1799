"""The ledger: bytes up and down counted by hand for every method, and those of past models by bookkeeping."""

from __future__ import annotations

import pytest
import torch
from every_method import WITH_REFERENCES
from problems import busy, classification

import fedmim
from fedmim.algorithms import METHODS

D = 4 * 5 + 5 + 5 * 3 + 3  # the parameters of the network in problems.py
ACTIVE = 4

VECTORS = {  # down and up, each of d numbers
    "fedavg": (1, 1),
    "fedadam": (1, 1),
    "scaffold": (2, 1),  # x and c; x, from which the server finds the change of c_i
    "fedcm": (2, 1),  # x and the last direction
    "feddyn": (1, 1),
    "fedsam": (1, 1),
    "fedmim": (2, 1),  # x - m2 and the inertia, because the server knows K
    "fedprox": (1, 1),
    "fedavgm": (1, 1),
    "fedmim J=0": (1, 1),
    "fedmim J=1": (2, 1),
    "fedmim J=3": (2, 1),
    "fedmim unequal lengths": (2, 1),
    "fedmim look-ahead in increments": (2, 1),
    "ghbm": (2, 1),
    "fedacg": (1, 1),  # the accelerated point
    "mofedsam": (2, 1),
    "fedgamma": (2, 1),
    "fedspeed": (1, 1),
    "fedsmoo": (2, 2),  # x and s; x and mu_i - s_i
    "fedlesam": (1, 1),
    "fedinit": (1, 1),
    "scaffoldm": (3, 1),  # x, c and v
    "fednova": (1, 1),
    "fedexp": (1, 1),
    "fedyogi": (1, 1),
    "fedadagrad": (1, 1),
    "mimelite": (2, 2),  # x and v; x and the full gradient
    "fedavg+leap": (1, 1),
    "feddyn+leap": (1, 1),
    "feddyn+leap+sharp": (1, 1),
    "scaffold+sharp": (2, 1),
    "centralised": (0, 0),
    "local": (0, 0),
    "own: local momentum": (1, 1),
    "own: state on both sides": (2, 2),
    "own: one past model": (2, 1),
}


@pytest.mark.parametrize(("engine", "dtype", "width"), [("vectorised", torch.float32, 4), ("serial", torch.float64, 8)])
@pytest.mark.parametrize("name", VECTORS)
def test_each_client_is_sent_and_sends_the_methods_vectors(name, engine, dtype, width):
    protocol = busy(rounds=2, local_steps=1, engine=engine)
    down, up = VECTORS[name]
    for record in fedmim.simulate(WITH_REFERENCES[name], classification(dtype=dtype), *protocol).history:
        assert record.bytes_down == ACTIVE * down * D * width
        assert record.bytes_up == ACTIVE * up * D * width


def test_the_methods_of_the_ledger_are_all_there_are():
    assert set(METHODS) <= set(VECTORS)


@pytest.mark.parametrize(
    ("alpha", "beta", "vectors"),
    [((0.5,), (), 2), ((), (0.5,), 1), ((), (), 1), ((0.0,), (0.0,), 1), ((0.5,), (0.1,), 2)],
)
def test_fedmim_sends_no_sum_whose_weights_are_all_zero(alpha, beta, vectors):
    history = fedmim.simulate(fedmim.FedMIM(alpha, beta), classification(), *busy(rounds=2, local_steps=1)).history
    assert [record.bytes_down for record in history] == [ACTIVE * vectors * D * 8] * 2


def run_history(algorithm, history, clients=12, rounds=15):
    flat = {"rounds": rounds, "participation": 0.25, "local_steps": 1, "batch_size": None, "seed": 5}
    settings = fedmim.Settings(**flat, history=history)
    return fedmim.simulate(algorithm, classification((3,) * clients), settings).history


METHODS_AND_PAST_MODELS = [
    (fedmim.FedMIM((), ()), 0),
    (fedmim.FedMIM((0.5,), ()), 1),
    (fedmim.FedMIM((0.6, 0.3), (0.9, 0.1)), 2),
    (fedmim.FedMIM((0.3,), (0.1,) * 4), 4),
    (WITH_REFERENCES["own: one past model"], 1),
]


@pytest.mark.parametrize(("algorithm", "memory"), METHODS_AND_PAST_MODELS)
def test_catch_up_sends_the_models_that_each_client_lacks(algorithm, memory):
    held: dict[int, set[int]] = {client: set() for client in range(12)}
    returning = False
    for record in run_history(algorithm, "catch-up"):
        t, sent = record.round - 1, 0
        needed = {s for s in range(t - memory, t + 1) if s >= 0}
        for client in record.clients:
            returning = returning or 0 < len(needed - held[client]) < len(needed)
            sent += len(needed - held[client])
            held[client] |= needed
        assert record.bytes_down == sent * D * 8
        assert record.bytes_up == len(record.clients) * D * 8
    assert returning == (memory > 0)  # some client lacked a part, so that the policy saved something


@pytest.mark.parametrize("name", ["fedmim", "own: one past model"])
def test_broadcast_sends_one_model_to_every_client_there_is(name):
    for record in run_history(WITH_REFERENCES[name], "broadcast", rounds=3):
        assert record.bytes_down == 12 * D * 8
        assert record.bytes_up == 3 * D * 8


@pytest.mark.parametrize("history", ["catch-up", "broadcast"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedcm", "fedmim J=0"])
def test_a_method_without_past_models_is_sent_its_broadcast_whatever_the_history(name, history):
    for record in run_history(WITH_REFERENCES[name], history, rounds=3):
        assert record.bytes_down == 3 * VECTORS[name][0] * D * 8


def test_catch_up_costs_between_one_and_j_plus_one_models_a_client():
    for record in run_history(fedmim.FedMIM(), "catch-up"):
        assert 3 * 1 * D * 8 <= record.bytes_down <= 3 * 3 * D * 8


def test_a_rejected_upload_crossed_the_wire_as_well():
    task = classification((3, 3, 3))
    task.clients[1][0][:] = torch.nan
    settings = fedmim.Settings(rounds=1, participation=1.0, local_steps=1)
    (record,) = fedmim.simulate(fedmim.FedAvg(), task, settings).history
    assert record.refused == 1
    assert record.bytes_up == record.bytes_down == 3 * D * 8
