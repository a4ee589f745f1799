"""What a run tells: one record a round, the model so far, and the result at the end."""

from __future__ import annotations

import copy
from dataclasses import fields, replace

import naive_methods as naive
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import SIZES, busy, classification
from torch.nn.utils import parameters_to_vector

import fedmim

ENGINES = ["serial", "vectorised"]


def test_a_record_has_its_documented_fields():
    named = "round test_accuracy test_loss train_loss consistency lr clients bytes_up bytes_down refused seconds"
    assert [field.name for field in fields(fedmim.Record)] == [
        *named.split(),
        "failed",
        "epsilon",
        "simulated_time",
        "steps_mean",
        "clients_mean",
        "clients_worst",
        "clients_std",
        *("clients_q10", "clients_q25", "clients_q50", "clients_q75", "clients_q90"),
        "personal_mean",
    ]


def test_records_come_one_a_round_as_it_ends():
    run = fedmim.rounds(fedmim.FedMIM(), classification(), *busy(rounds=3, lr=0.3, lr_decay=0.5))
    for number in (1, 2, 3):
        record = next(run)
        assert record.round == run.state.round == number
        assert record.lr == pytest.approx(0.3 * 0.5 ** (number - 1))
        assert record.seconds > 0
        assert isinstance(record.clients, tuple)
        assert all(isinstance(client, int) for client in record.clients)
    with pytest.raises(StopIteration):
        next(run)


def test_the_default_settings_need_not_be_given():
    run = fedmim.rounds(fedmim.FedAvg(), classification((3,) * 20))
    assert len(next(run).clients) == 2
    assert run.settings == fedmim.Settings()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("weighting", ["equal", "samples"])
def test_the_training_loss_is_the_mean_of_the_minibatch_losses_where_the_steps_begin(engine, weighting):
    task, protocol = classification(), busy(rounds=1, engine=engine, weighting=weighting)
    fed = naive.Federation(task, protocol[0])
    losses = {}

    def noting(i, w, batch):
        g = fed.gradient(w, batch)  # leaves the module at w
        with torch.no_grad():
            losses.setdefault(i, []).append(F.cross_entropy(fed.module(batch[0]), batch[1]))
        return g

    naive.local_sgd(fed, 0, fed.start(), noting)
    expected = fed.mean({i: torch.stack(own).mean() for i, own in losses.items()}).item()
    (record,) = fedmim.simulate(fedmim.FedAvg(), task, *protocol).history
    assert record.train_loss == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_fedsams_training_loss_is_that_of_the_first_of_its_two_gradients(engine):
    """One full-batch step from the start: the loss there is that of FedAvg."""
    once = busy(rounds=1, local_steps=1, batch_size=None, engine=engine)
    sam, avg = (fedmim.simulate(method, classification(), *once) for method in (fedmim.FedSAM(), fedmim.FedAvg()))
    assert sam.history[0].train_loss == pytest.approx(avg.history[0].train_loss, rel=1e-14)


def test_evaluation_comes_every_so_many_rounds_and_after_the_last():
    history = fedmim.simulate(fedmim.FedAvg(), classification(), *busy(rounds=7, eval_every=3)).history
    assert [record.round for record in history if record.test_loss is not None] == [3, 6, 7]
    assert [record.round for record in history if record.test_accuracy is not None] == [3, 6, 7]


def test_how_often_is_evaluated_does_not_change_the_run():
    often, seldom = (fedmim.simulate(fedmim.FedMIM(), classification(), *busy(eval_every=every)) for every in (1, 5))
    assert torch.equal(often.params, seldom.params)


def test_the_result_holds_the_model_as_vector_and_as_module():
    task = classification()
    result = fedmim.simulate(fedmim.FedMIM(), task, *busy())
    assert torch.equal(parameters_to_vector(result.model.parameters()), result.params)
    assert not result.model.training
    assert type(result.model) is type(task.model)
    assert len(result.history) == 5
    copy.deepcopy(task.model).load_state_dict(result.model.state_dict())
    assert result.model.state_dict().keys() == task.model.state_dict().keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_model_of_a_round_stays_what_it_was_in_later_rounds(engine):
    run = fedmim.rounds(fedmim.FedMIM(), classification(), *busy(engine=engine))
    kept = [(run.model, run.params.clone()) for _ in run]
    for module, params in kept:
        assert torch.equal(parameters_to_vector(module.parameters()), params)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_model_so_far_is_the_users_to_change(engine):
    protocol = busy(engine=engine)
    expected = fedmim.simulate(fedmim.Scaffold(), classification(), *protocol).params
    run = fedmim.rounds(fedmim.Scaffold(), classification(), *protocol)
    for _ in run:
        module = run.model
        assert torch.equal(parameters_to_vector(module.parameters()), run.params)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(7.0)
    assert torch.equal(run.params, expected)


def test_simulate_gives_the_records_of_rounds():
    task, (settings, _) = classification(), busy()
    one, other = fedmim.rounds(fedmim.FedCM(), task, settings), fedmim.simulate(fedmim.FedCM(), task, settings)
    assert [replace(r, seconds=0.0) for r in one] == [replace(r, seconds=0.0) for r in other.history]


def test_an_evaluation_that_fails_once_loses_no_record():
    failures = []

    def metric(outputs, targets):
        if not failures:
            failures.append(1)
            raise RuntimeError("once")
        return 0.5

    run = fedmim.rounds(fedmim.FedAvg(), classification(metric=metric), *busy(rounds=3))
    with pytest.raises(RuntimeError, match="once"):
        next(run)
    assert [record.round for record in run] == [1, 2, 3]
    assert torch.equal(run.params, fedmim.simulate(fedmim.FedAvg(), classification(), *busy(rounds=3)).params)


def test_the_callers_threads_and_random_numbers_stay_as_they_were():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.manual_seed(4)
        before = torch.get_rng_state()
        fedmim.simulate(fedmim.FedMIM(), classification(), *busy(engine="serial"))
        fedmim.simulate(fedmim.FedMIM(), classification(), *busy(engine="vectorised"))
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_num_threads(threads)


def test_a_client_keeps_the_very_model_that_it_sent():
    """A method that keeps w as its state as well as sending it up."""

    class Keeper(fedmim.FedAvg):
        client_slots = ("last",)

        def finish(self, w, local):
            return {"params": w}, {"last": w}

    for dtype, engine in [(torch.float32, "serial"), (torch.float64, "serial"), (torch.float64, "vectorised")]:
        run = fedmim.rounds(Keeper(), classification(dtype=dtype), *busy(participation=1.0, engine=engine))
        next(run)
        mean = sum(run.server.clients.get(client)["last"].double() for client in range(len(SIZES))) / len(SIZES)
        torch.testing.assert_close(run.params.double(), mean, rtol=1e-6, atol=1e-7)
