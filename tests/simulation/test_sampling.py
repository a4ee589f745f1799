"""Who trains and on what: exact numbers, without replacement, keyed by seed, round and client alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from every_method import EVERY_METHOD
from problems import busy, classification

import fedmim
from fedmim.simulation.randomness import client_generator, key, minibatches, sample_clients


@pytest.mark.parametrize(("population", "active"), [(10, 1), (10, 3), (10, 10), (1_000_000, 5)])
def test_a_sample_has_exactly_s_different_clients_in_ascending_order(population, active):
    for round in range(20):
        chosen = sample_clients(0, round, population, active)
        assert len(set(chosen)) == active
        assert chosen == sorted(chosen)
        assert 0 <= chosen[0] <= chosen[-1] < population


def test_every_client_is_as_likely_as_any_other():
    """3 of 10 in 2000 rounds: 600 times each, with a standard deviation of sqrt(2000 * 0.3 * 0.7) = 20.5."""
    counts = Counter(client for round in range(2000) for client in sample_clients(7, round, 10, 3))
    assert all(abs(counts[client] - 600) < 5 * 20.5 for client in range(10))


def test_the_sample_depends_on_the_seed_and_on_the_round():
    samples = {(seed, round): tuple(sample_clients(seed, round, 1000, 10)) for seed in range(5) for round in range(5)}
    assert len(set(samples.values())) == 25


def test_every_method_and_engine_meets_the_same_clients_at_one_seed():
    def met(algorithm, engine):
        protocol = busy(rounds=3, participation=0.3, engine=engine, local_steps=1)
        return [record.clients for record in fedmim.simulate(algorithm, classification(), *protocol).history]

    expected = met(fedmim.FedAvg(), "serial")
    assert [len(clients) for clients in expected] == [2, 2, 2]  # 0.3 * 7 = 2.1
    assert all(met(algorithm, "serial") == expected for algorithm in EVERY_METHOD.values())
    assert met(fedmim.FedMIM(), "vectorised") == expected


@pytest.mark.parametrize("samples", [1, 4, 7, 12])
def test_epochs_are_fresh_permutations_cut_into_batches(samples):
    settings = fedmim.Settings(local_epochs=3, batch_size=4)
    batches = list(minibatches(samples, settings, client_generator(0, 0, 0)))
    per_epoch = -(-samples // 4)
    assert len(batches) == 3 * per_epoch
    epochs = [torch.cat(batches[e * per_epoch : (e + 1) * per_epoch]).tolist() for e in range(3)]
    assert all(sorted(epoch) == list(range(samples)) for epoch in epochs)
    assert [len(batch) for batch in batches[: per_epoch - 1]] == [4] * (per_epoch - 1)
    assert len(batches[per_epoch - 1]) == samples - 4 * (per_epoch - 1)
    if samples > 4:
        assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_number_of_steps_runs_on_through_as_many_epochs_as_it_needs():
    settings = fedmim.Settings(local_steps=5, batch_size=4)
    batches = list(minibatches(7, settings, client_generator(0, 0, 0)))
    assert [len(batch) for batch in batches] == [4, 3, 4, 3, 4]
    assert sorted(torch.cat(batches[2:4]).tolist()) == list(range(7))


@pytest.mark.parametrize(
    ("samples", "kept"), [(1, [1]), (3, [3]), (4, [4]), (5, [4]), (7, [4]), (8, [4, 4]), (9, [4, 4])]
)
def test_the_smaller_last_batch_can_be_left_out_but_not_a_clients_only_one(samples, kept):
    settings = fedmim.Settings(local_epochs=2, batch_size=4)
    dropping = replace(settings, drop_last=True)
    batches = minibatches(samples, dropping, client_generator(0, 0, 0))
    assert [len(batch) for batch in batches] == 2 * kept
    assert dropping.steps(samples) == 2 * len(kept)
    whole = minibatches(samples, settings, client_generator(0, 0, 0))  # the same but for what is left out
    assert [b.tolist() for b in batches] == [b.tolist() for b in whole if len(b) == max(kept)]
    assert [len(b) for b in minibatches(9, replace(dropping, local_steps=3), client_generator(0, 0, 0))] == [4, 4, 4]


def test_full_batches_hold_all_samples():
    settings = fedmim.Settings(local_epochs=2, batch_size=None)
    assert [len(batch) for batch in minibatches(9, settings, client_generator(0, 0, 0))] == [9, 9]


def test_batches_depend_on_seed_round_and_client():
    drawn = {
        (seed, round, client): tuple(torch.randperm(50, generator=client_generator(seed, round, client)).tolist())
        for seed in range(3)
        for round in range(3)
        for client in range(3)
    }
    assert len(set(drawn.values())) == 27


def test_keys_tell_purposes_and_neighbouring_numbers_apart():
    keys = [key("a", 1, 23), key("a", 12, 3), key("a", 123), key("b", 1, 23), key("a", 1, 2, 3)]
    assert len(set(keys)) == 5
    assert all(0 <= value < 2**32 for value in keys)
