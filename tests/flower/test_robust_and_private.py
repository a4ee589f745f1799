"""Robust aggregation and differential privacy over Flower, as in the simulator; the secret never leaves the server."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flwr.app import Array, ArrayRecord
from loopback import assert_same, federation
from problems import BUSY, SIZES, classification

import fedmim
from fedmim.errors import UserError
from fedmim.flower import FlowerStrategy, client_app

N = len(SIZES)
TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 4, "participation": 1.0})
PRIVATE = replace(SETTINGS, local_steps=3, participation=0.6, dp_noise=0.5, dp_clip=0.7, clip_norm=None)


def make(algorithm, settings, tmp_path, fault=None, **options):
    app = client_app(lambda partition, context: TASK, algorithm, settings)
    grid = federation(app, N, tmp_path, fault)
    return FlowerStrategy(algorithm, TASK.model, settings, clients=N, wait=0.0, **options), grid


def run(strategy, grid):
    models = []
    strategy.start(grid, evaluate_fn=lambda round, arrays: models.append(arrays.to_torch_state_dict()))
    return models[1:]


def simulated(algorithm, settings, noise_seed=None):
    run = fedmim.rounds(algorithm, TASK, settings, fedmim.Execution(engine="serial"), noise_seed=noise_seed)
    records, models = [], []
    for record in run:
        records.append(record)
        models.append(run.model.state_dict())
    return records, models


def attacks(clients, factor):
    """These clients scale their model."""

    def fault(message, answer):
        reply = answer()
        if message.metadata.message_type == "train" and message.content["config"]["fedmim-client"] in clients:
            arrays = {name: array.numpy() * factor for name, array in reply.content["arrays"].items()}
            reply.content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return reply

    return fault


ROBUST = [
    {"max_distance_ratio": 3.0},
    {"max_distance": 5.0},
    {"aggregation": "trimmed-mean", "trim": 0.3},
    {"aggregation": "median"},
]


@pytest.mark.parametrize("rule", ROBUST, ids=str)
@pytest.mark.parametrize("algorithm", [fedmim.FedAvg(), fedmim.FedMIM(), fedmim.Scaffold()], ids=lambda a: a.title)
def test_every_rule_gives_the_simulators_bits(rule, algorithm, tmp_path):
    settings = replace(SETTINGS, **rule)
    strategy, grid = make(algorithm, settings, tmp_path)
    models = run(strategy, grid)
    records, expected = simulated(algorithm, settings)
    assert_same(models, expected)
    assert [r.refused for r in strategy.history] == [r.refused for r in records]


@pytest.mark.parametrize("rule", ROBUST[:2], ids=str)
def test_an_upload_that_is_too_far_away_is_rejected_with_its_reason_and_has_no_effect(rule, tmp_path):
    settings = replace(SETTINGS, **rule)
    strategy, grid = make(fedmim.FedMIM(), settings, tmp_path / "a", attacks({2}, 1e30))
    models = run(strategy, grid)
    assert [record.refused for record in strategy.history] == [1] * 4
    assert [record.failed for record in strategy.history] == [0] * 4
    assert all("client 2: its upload is" in line and "from its public point" in line for line in strategy.failures)

    def absent(message, answer):
        if message.metadata.message_type == "train" and message.content["config"]["fedmim-client"] == 2:
            raise RuntimeError("absent")
        return answer()

    assert_same(models, run(*make(fedmim.FedMIM(), settings, tmp_path / "b", absent)))


def test_a_round_with_too_few_replies_changes_nothing(tmp_path, caplog):
    def second_round(message, answer):
        config = message.content.get("config", {})
        if config.get("server-round") == 2 and config["fedmim-client"] > 2:
            raise RuntimeError("absent")
        return answer()

    strategy, grid = make(fedmim.Scaffold(), replace(SETTINGS, min_replies=5), tmp_path, second_round)
    models = run(strategy, grid)
    assert_same(models[1:2], models[:1])
    assert not all(torch.equal(models[2][name], models[1][name]) for name in models[1])
    assert "round 2: 3 replies were accepted, fewer than min_replies (5); the model is unchanged" in caplog.text


@pytest.mark.parametrize("algorithm", [fedmim.FedAvg(), fedmim.FedMIM(), fedmim.FedDyn()], ids=lambda a: a.title)
@pytest.mark.parametrize("quantile", [None, 0.5])
def test_a_private_run_is_the_simulators_with_the_same_secret(algorithm, quantile, tmp_path):
    settings = replace(PRIVATE, dp_clip_quantile=quantile)
    strategy, grid = make(algorithm, settings, tmp_path)
    models = run(strategy, grid)
    records, expected = simulated(algorithm, settings, strategy.server.noise_seed)
    assert_same(models, expected)
    assert [r.epsilon for r in strategy.history] == [r.epsilon for r in records]
    assert strategy.history[-1].epsilon > strategy.history[0].epsilon > 0
    assert [(r.train_loss, r.consistency) for r in strategy.history] == [(None, None)] * 4


def test_the_secret_is_new_in_every_run_and_in_no_message(tmp_path):
    seeds = set()
    for name in ("a", "b"):
        strategy, grid = make(fedmim.FedMIM(), PRIVATE, tmp_path / name)
        run(strategy, grid)
        seeds.add(strategy.server.noise_seed)
        assert strategy.server.noise_seed != PRIVATE.seed
        sent = " ".join(str(dict(record)) for m in grid.sent for record in m.content.config_records.values())
        assert "fedmim-run" in sent
        assert str(strategy.server.noise_seed) not in sent
        assert "dp_noise" not in sent
    assert len(seeds) == 2


def test_a_resumed_private_run_continues_with_its_secret(tmp_path):
    def dies(message, answer):
        if message.content.get("config", {}).get("server-round") == 3:
            raise KeyboardInterrupt
        return answer()

    strategy, grid = make(fedmim.FedMIM(), PRIVATE, tmp_path, dies, folder=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(strategy, grid)
    secret = strategy.server.noise_seed
    strategy, grid = make(fedmim.FedMIM(), PRIVATE, tmp_path, folder=tmp_path / "run", resume=True)
    models = run(strategy, grid)
    assert strategy.server.noise_seed == secret
    assert_same(models, simulated(fedmim.FedMIM(), PRIVATE, secret)[1][2:])


def test_no_client_takes_the_place_of_an_absent_one_in_a_private_run(tmp_path):
    strategy, grid = make(fedmim.FedAvg(), PRIVATE, tmp_path, min_available_nodes=1)
    del grid.nodes[list(grid.nodes)[3]]
    run(strategy, grid)
    drawn = [set(r.clients) for r in simulated(fedmim.FedAvg(), PRIVATE, strategy.server.noise_seed)[0]]
    assert any(3 in clients for clients in drawn)
    assert [set(record.clients) for record in strategy.history] == [clients - {3} for clients in drawn]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fraction_evaluate": 0.5}, "fraction_evaluate: the clients' metrics have no noise"),
        ({"train_metrics_aggr_fn": print}, "train_metrics_aggr_fn: the clients' metrics have no noise"),
        ({"client_state": "server"}, "client_state: with dp_noise the server must not keep"),
    ],
)
def test_what_would_publish_data_without_noise_is_rejected(options, words, tmp_path):
    with pytest.raises(UserError, match=words):
        make(fedmim.FedDyn(), PRIVATE, tmp_path, **options)


def test_the_clients_own_metrics_are_not_published_in_a_private_run(tmp_path):
    def adds(message, answer):
        reply = answer()
        if message.metadata.message_type == "train":
            reply.content["metrics"]["income"] = 1.0
        return reply

    for settings, there in ((SETTINGS, True), (PRIVATE, False)):
        strategy, grid = make(fedmim.FedAvg(), settings, tmp_path, adds)
        result = strategy.start(grid)
        assert ("income" in result.train_metrics_clientapp[1]) == there


@pytest.mark.parametrize("changes", [{"work": "uniform:0,1"}, {"dropout": 0.1}, {"deadline": 1.0}], ids=str)
def test_simulated_participation_is_rejected_because_the_clients_are_real(tmp_path, changes):
    with pytest.raises(UserError, match=f"^{next(iter(changes))}: must be (none|0.0) with Flower; it is for simul"):
        make(fedmim.FedAvg(), replace(SETTINGS, **changes), tmp_path)


def test_compression_is_rejected_because_whole_vectors_would_be_sent(tmp_path):
    with pytest.raises(UserError, match=r"^method: FedAvg \+ topk is for simulations"):
        make(fedmim.TopK(fedmim.FedAvg()), SETTINGS, tmp_path)


@pytest.mark.parametrize("reference", [fedmim.Centralised(), fedmim.Sharp(fedmim.LocalOnly())])
def test_references_are_for_simulations(reference):
    with pytest.raises(UserError, match="is for simulations; it has no communication"):
        FlowerStrategy(reference, classification().model)
