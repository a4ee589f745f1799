"""Evaluation of each client: the numbers of a plain loop, and a run that is the same with and without it."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import naive_methods as naive
import pytest
import torch
from every_method import WITH_REFERENCES
from problems import SIZES, busy, classification, samples
from torch import nn
from torch.nn.utils import vector_to_parameters
from worker_runs import assert_same_bits

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.per_client import ClientScores

TEST_SIZES = (4, 1, 7, None, 2, 9, 1)


def own_test_data(dtype=torch.float64):
    return [None if n is None else samples(n, 50 + client, dtype) for client, n in enumerate(TEST_SIZES)]


def accuracy(module, params, pair):
    """Sample by sample."""
    vector_to_parameters(params, module.parameters())
    x, y = pair
    return sum(int(module(x[i : i + 1]).argmax()) == int(y[i]) for i in range(len(y))) / len(y)


QUANTILES = ("clients_q10", "clients_q25", "clients_q50", "clients_q75", "clients_q90")


def records_of(run):
    return [replace(record, seconds=0.0) for record in run]


def cleared(records):
    """The records without what is known of the clients."""
    names = ("clients_mean", "clients_worst", "clients_std", "personal_mean", *QUANTILES)
    return [replace(record, **dict.fromkeys(names)) for record in records]


@pytest.mark.parametrize("own_tests", [True, False])
def test_each_client_has_the_accuracy_of_a_plain_loop(own_tests):
    """With test data of its own, or with its training data; clients of one sample, and one without test data."""
    task = classification(client_tests=own_test_data() if own_tests else None)
    result = fedmim.simulate(fedmim.FedMIM(), task, *busy(per_client="global", eval_every=5))
    (scores,) = result.client_scores
    data = task.client_tests if own_tests else task.clients
    expected = tuple(None if pair is None else accuracy(task.model, result.params, pair) for pair in data)
    assert (scores.round, scores.evaluated_on) == (5, "test" if own_tests else "train")
    assert scores.model == expected
    assert scores.personal is None
    known = [score for score in expected if score is not None]
    record = result.history[-1]
    assert record.clients_mean == pytest.approx(sum(known) / len(known), rel=1e-14)
    assert record.clients_worst == min(known)  # a tenth of 7 clients is one
    assert record.clients_std == pytest.approx(math.sqrt(statistics.pvariance(known)), rel=1e-12)
    assert record.personal_mean is None


def test_the_quantiles_lie_between_the_sorted_clients():
    """Of n clients, the quantile p is at place p (n - 1) of 0, ..., n - 1."""
    values = (0.5, None, 0.0, 1.0, 0.2, 0.6)  # sorted: 0, 0.2, 0.5, 0.6, 1
    plain = fedmim.Record(1, None, None, None, None, 0.1, (), 0, 0, 0, 0.0)
    record = ClientScores(1, "test", values).summarised(plain)
    by_hand = [0.08, 0.2, 0.5, 0.6, 0.84]  # 0 + 0.4 * 0.2, places 1, 2 and 3, and 0.6 + 0.6 * 0.4
    assert [getattr(record, name) for name in QUANTILES] == pytest.approx(by_hand, rel=1e-14)
    empty = ClientScores(1, "test", (None, None)).summarised(plain)
    assert [getattr(empty, name) for name in QUANTILES] == [None] * 5


def test_the_worst_tenth_of_many_clients_is_a_mean_and_large_groups_are_split_right(monkeypatch):
    monkeypatch.setattr("fedmim.simulation.per_client.BATCH", 20)  # groups of several clients, and clients of several
    monkeypatch.setattr("fedmim.simulation.evaluation.BATCH", 20)
    task = classification(tuple(1 + (11 * i) % 43 for i in range(31)))
    result = fedmim.simulate(fedmim.FedAvg(), task, *busy(per_client="global", rounds=1))
    expected = [accuracy(task.model, result.params, pair) for pair in task.clients]
    assert list(result.client_scores[0].model) == expected
    assert result.history[0].clients_worst == pytest.approx(sum(sorted(expected)[:4]) / 4)  # ceil(3.1)


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_the_personal_model_is_the_global_one_after_plain_sgd_on_the_clients_next_minibatches(engine):
    task, (settings, execution) = (
        classification(client_tests=own_test_data()),
        busy(engine=engine, per_client="personal"),
    )
    result = fedmim.simulate(fedmim.FedAvg(), task, settings, execution)
    assert len(result.client_scores) == settings.rounds
    fed, t = naive.Federation(task, settings), settings.rounds
    expected = []
    for client, pair in enumerate(task.client_tests):
        w = result.params.clone()
        for batch in fed.batches(t, client):
            w = w - fed.lr(t) * fed.gradient(w, batch)
        expected.append(None if pair is None else accuracy(task.model, w, pair))
    assert list(result.client_scores[-1].personal) == expected
    assert list(result.client_scores[-1].personal) != list(result.client_scores[-1].model)
    known = [each for each in expected if each is not None]
    assert result.history[-1].personal_mean == pytest.approx(sum(known) / len(known))


@pytest.mark.parametrize("method", [fedmim.Scaffold(), fedmim.FedMIM(), fedmim.FedDyn()], ids=lambda each: each.title)
def test_the_personal_models_of_a_round_are_those_that_the_next_round_trains(method):
    """The state that a client has after this round is the one that it starts with."""
    seen = []

    class Noting(type(method)):
        def finish(self, w, local):
            seen.append(w.clone())
            return super().finish(w, local)

    task = classification()
    run = fedmim.rounds(Noting(), task, *busy(engine="serial", participation=1.0, per_client="personal"))
    next(run)
    personal = run.client_scores.personal
    seen.clear()
    next(run)
    order = sorted(range(len(SIZES)), key=lambda client: (-SIZES[client], client))
    models = dict(zip(order, seen, strict=True))
    assert list(personal) == [accuracy(task.model, models[client], task.clients[client]) for client in range(7)]


@pytest.mark.parametrize("name", WITH_REFERENCES)
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_the_run_has_the_same_bits_with_and_without(name, engine):
    runs = [
        fedmim.rounds(WITH_REFERENCES[name], classification(), *busy(engine=engine, per_client=per_client, rounds=3))
        for per_client in ("off", "personal")
    ]
    before = torch.get_rng_state()
    one, other = [(run, cleared(records_of(run))) for run in runs]
    assert_same_bits(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_run_and_the_scores_are_those_of_the_serial_engine_in_processes():
    """With a model that has buffers and random layers, and clients that keep vectors."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    task = classification((6, 8, 10, 4), model=model)

    def made(engine, per_client):
        settings = busy(engine=engine, workers=2, per_client=per_client, rounds=3, drop_last=True)
        run, scores = fedmim.rounds(fedmim.Scaffold(), task, *settings), []
        records = []
        for record in run:
            records.append(replace(record, seconds=0.0))
            scores.append(run.client_scores)
        return run, records, scores

    serial, processes, plain = made("serial", "personal"), made("processes", "personal"), made("processes", "off")
    assert processes[0].engine == "processes"
    assert serial[2] == processes[2]
    assert_same_bits(serial[:2], processes[:2], clients=4)
    assert_same_bits((plain[0], plain[1]), (processes[0], cleared(processes[1])), clients=4)


def test_a_metric_of_ones_own_is_called_once_for_each_client():
    def share_of_class_0(outputs, targets):
        return (outputs.argmax(1) == 0).double().mean() - 2  # a metric may be negative

    task = classification(metric=share_of_class_0)
    result = fedmim.simulate(fedmim.FedAvg(), task, *busy(per_client="global", rounds=1))
    vector_to_parameters(result.params, task.model.parameters())
    expected = tuple(share_of_class_0(task.model(x), y).item() for x, y in task.clients)
    assert result.client_scores[0].model == expected


def test_outputs_and_samples_that_are_not_tensors_are_evaluated_client_by_client():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3).double()

        def forward(self, x):
            return {"logits": self.linear(x), "mean": x.mean()}

    def correct(outputs, targets):
        return (outputs["logits"].argmax(1) == targets).double().mean()

    task = classification(
        model=Named(), loss=lambda outputs, y: nn.functional.cross_entropy(outputs["logits"], y), metric=correct
    )
    task = replace(task, clients=[({"x": x}, y) for x, y in task.clients], test=({"x": task.test[0]}, task.test[1]))
    result = fedmim.simulate(fedmim.FedAvg(), task, *busy(per_client="personal", rounds=1, engine="serial"))
    expected = tuple(correct(result.model(**x), y).item() for x, y in task.clients)
    assert result.client_scores[0].model == expected
    assert None not in result.client_scores[0].personal


def test_only_evaluation_rounds_evaluate_the_clients():
    history = fedmim.simulate(fedmim.FedAvg(), classification(), *busy(eval_every=2, per_client="global")).history
    assert [record.round for record in history if record.clients_mean is not None] == [2, 4, 5]


def test_a_task_without_a_metric_is_rejected_before_training():
    task = classification(loss=nn.functional.mse_loss)
    task = replace(task, clients=[(x, torch.zeros(len(x), 3).double()) for x, _ in task.clients])
    with pytest.raises(UserError, match="per_client: the task has no metric"):
        fedmim.rounds(fedmim.FedAvg(), task, *busy(per_client="global"))


def test_a_metric_that_fails_names_the_client_and_a_metric_that_is_not_finite_counts_as_none():
    def only_of_several(outputs, targets):
        if len(targets) == 3:
            raise ValueError("cannot")
        return float("nan") if len(targets) == 1 else 0.5

    with pytest.raises(ValueError, match="cannot") as caught:
        fedmim.simulate(fedmim.FedAvg(), classification(metric=only_of_several), *busy(per_client="global"))
    assert "the metric failed for client 0" in caught.value.__notes__
    task = classification((1, 4, 5), metric=only_of_several)
    result = fedmim.simulate(fedmim.FedAvg(), task, *busy(per_client="global", rounds=1))
    assert result.client_scores[0].model == (None, 0.5, 0.5)
    assert result.history[0].clients_mean == 0.5


def test_the_clients_of_a_data_set_that_divides_its_test_data_have_its_accuracy_as_weighted_mean():
    task = fedmim.Task.named("synthetic:1,1", split="natural", clients=0, model="logistic")
    settings = fedmim.Settings(rounds=1, local_steps=5, lr=0.01)
    result = fedmim.simulate(fedmim.FedAvg(), task, settings, fedmim.Execution(per_client="global"))
    sizes = [len(y) for _, y in task.client_tests]
    scores = result.client_scores[0].model
    right = sum(size * score for size, score in zip(sizes, scores, strict=True))
    assert right / sum(sizes) == pytest.approx(result.history[0].test_accuracy, rel=1e-12)
