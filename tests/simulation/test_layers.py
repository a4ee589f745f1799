"""Models with buffers, with random layers, with frozen parameters; and which engine takes them."""

from __future__ import annotations

import copy

import pytest
import torch
from problems import busy, classification, network
from torch import nn

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.randomness import client_generator, minibatches

SIZES = (6, 8, 10, 4)  # with batches of 4: 2, 2, 3 and 1 steps an epoch, and no batch of a single sample


def made(*layers):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(*(layer() for layer in layers)).double()


def batch_norm():
    return made(lambda: nn.Linear(4, 5), lambda: nn.BatchNorm1d(5), nn.Tanh, lambda: nn.Linear(5, 3))


def dropout():
    return made(lambda: nn.Linear(4, 8), nn.Tanh, lambda: nn.Dropout(0.4), lambda: nn.Linear(8, 3))


def settings(**overrides):
    return busy(**{"participation": 1.0, "rounds": 2, "lr_decay": 1.0} | overrides)[0]


SERIAL, VECTORISED = fedmim.Execution("serial"), fedmim.Execution("vectorised")


def naive_client(module, task, chosen, t, client):
    """Plain PyTorch training of a copy of the module: SGD with weight decay, the gradient clipped before."""
    module = copy.deepcopy(module).train()
    x, y = task.clients[client]
    for index in minibatches(len(x), chosen, client_generator(chosen.seed, t, client)):
        module.zero_grad()
        task.loss(module(x[index]), y[index]).backward()
        nn.utils.clip_grad_norm_(module.parameters(), chosen.clip_norm)
        with torch.no_grad():
            for p in module.parameters():
                p -= chosen.lr * (p.grad + chosen.weight_decay * p)
    return module.state_dict()


@pytest.mark.parametrize("weighting", ["equal", "samples"])
def test_batch_norm_statistics_are_the_mean_of_the_clients_statistics(weighting):
    task, chosen = classification(SIZES, model=batch_norm()), settings(weighting=weighting)
    weights = torch.tensor(SIZES if weighting == "samples" else (1, 1, 1, 1), dtype=torch.float64)
    weights = weights / weights.sum()
    module = copy.deepcopy(task.model)
    run = fedmim.rounds(fedmim.FedAvg(), task, chosen)
    assert run.engine == "serial"
    for t, _ in enumerate(run):
        states = [naive_client(module, task, chosen, t, client) for client in range(4)]
        expected = {
            name: sum(weight * state[name].double() for weight, state in zip(weights, states, strict=True))
            for name in states[0]
        }
        trained = run.model.state_dict()
        for name, value in expected.items():
            if name != "1.num_batches_tracked":
                # clip_grad_norm_ divides by norm + 1e-6, so the paths part at that order where it clips
                torch.testing.assert_close(trained[name], value, rtol=1e-5, atol=1e-5)
        assert trained["1.num_batches_tracked"].dtype == torch.long
        if t == 0:
            steps = weights @ torch.tensor([4.0, 4.0, 6.0, 2.0], dtype=torch.float64)
            assert trained["1.num_batches_tracked"].item() == round(steps.item())
        module.load_state_dict(trained)
    assert (states[0]["1.running_mean"] - states[1]["1.running_mean"]).abs().max() > 1e-2  # clients do differ


def test_each_client_starts_from_the_global_statistics_not_from_its_predecessors():
    """Of two equal clients, the second must end where the first did."""
    task = classification((8, 8), model=batch_norm())
    task.clients[1] = task.clients[0]
    seen = []

    class Watching(fedmim.FedAvg):
        def finish(self, w, local):
            seen.append((w.clone(), local.model.buffers))
            return super().finish(w, local)

    fedmim.simulate(Watching(), task, settings(rounds=1, batch_size=None, local_epochs=3))
    torch.testing.assert_close(seen[0][0], seen[1][0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen[0][1], seen[1][1], rtol=1e-12, atol=1e-12)


def test_evaluation_uses_the_statistics_and_does_not_move_them():
    task = classification(SIZES, model=batch_norm())
    run = fedmim.rounds(fedmim.FedMIM(), task, settings())
    for record in run:
        module = run.model
        assert not module.training
        with torch.no_grad():
            outputs = module(task.test[0])
        assert record.test_loss == pytest.approx(task.loss(outputs, task.test[1]).item(), rel=1e-12)
        assert record.test_accuracy == pytest.approx((outputs.argmax(1) == task.test[1]).double().mean().item())


def test_batch_norm_trains_on_clients_of_any_size_where_the_last_batch_is_left_out():
    sizes = (5, 8, 9, 4)  # with batches of 4 the first and the third have a last one of a single sample
    task = classification(sizes, model=batch_norm())
    with pytest.raises(ValueError, match="more than 1 value per channel") as caught:
        fedmim.simulate(fedmim.FedAvg(), task, settings())
    remedy, whose = caught.value.__notes__
    assert "one sample; drop_last drops" in remedy
    assert whose == "client 2 failed in round 1"
    chosen = settings(drop_last=True, rounds=1)
    result = fedmim.simulate(fedmim.FedAvg(), task, chosen)
    states = [naive_client(task.model, task, chosen, 0, client) for client in range(4)]
    for name, value in result.model.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, sum(state[name] for state in states) / 4)


def test_a_batch_norm_run_resumes_to_the_same_bits(tmp_path):
    task, chosen = classification(SIZES, model=batch_norm()), settings(rounds=4, participation=0.5)
    whole = fedmim.rounds(fedmim.Scaffold(), task, chosen)
    list(whole)
    run = fedmim.rounds(fedmim.Scaffold(), task, chosen, folder=tmp_path)
    next(run), next(run)
    run.save()
    resumed = fedmim.rounds(fedmim.Scaffold(), task, chosen, folder=tmp_path, resume=True)
    list(resumed)
    assert torch.equal(resumed.params, whole.params)
    assert torch.equal(resumed.server.buffers, whole.server.buffers)


def test_an_update_that_fails_leaves_the_statistics_as_they_were():
    class FailsOnce(fedmim.FedAvg):
        def update(self, state, mean, round):
            if round.number == 1 and not failures:
                failures.append(round.number)
                raise RuntimeError("once")
            return super().update(state, mean, round)

    failures = []
    task, chosen = classification(SIZES, model=batch_norm()), settings(rounds=3)
    whole = fedmim.rounds(fedmim.FedAvg(), task, chosen)
    list(whole)
    run = fedmim.rounds(FailsOnce(), task, chosen)
    next(run)
    with pytest.raises(RuntimeError, match="once"):
        next(run)
    list(run)
    assert torch.equal(run.server.buffers, whole.server.buffers)
    assert torch.equal(run.params, whole.params)


def test_dropout_is_repeatable_at_work_and_leaves_the_global_generator_alone():
    task = classification(SIZES, model=dropout())
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one = fedmim.rounds(fedmim.FedAvg(), task, settings())
    assert one.engine == "serial"
    list(one)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    other = fedmim.simulate(fedmim.FedAvg(), task, settings())
    assert torch.equal(one.params, other.params)
    still = copy.deepcopy(task.model)
    still[2].p = 0.0
    without = fedmim.simulate(fedmim.FedAvg(), classification(SIZES, model=still), settings())
    assert (without.params - one.params).abs().max() > 1e-3


def test_dropout_masks_differ_between_clients_and_rounds_and_follow_the_seed():
    masks = []

    class Noting(nn.Module):
        def forward(self, x):
            kept = nn.functional.dropout(torch.ones(20, dtype=torch.float64), 0.5, self.training)
            if self.training:
                masks.append(tuple(kept.tolist()))
            return x * kept.mean()

    def drawn(seed):
        masks.clear()
        model = nn.Sequential(Noting(), nn.Linear(4, 3).double())
        task = classification((4, 4, 4), model=model)
        fedmim.simulate(fedmim.FedAvg(), task, settings(seed=seed, local_epochs=1, batch_size=None), SERIAL)
        return list(masks)

    first = drawn(0)
    assert len(set(first)) == 6  # 3 clients in 2 rounds
    assert first == drawn(0)
    assert not set(first) & set(drawn(1))


@pytest.mark.parametrize("model", [batch_norm, dropout])
def test_the_vectorised_engine_rejects_what_it_cannot_train(model):
    with pytest.raises(UserError, match=r"^engine: "):
        fedmim.rounds(fedmim.FedAvg(), classification(SIZES, model=model()), settings(), VECTORISED)


def test_auto_stacks_matrix_products_and_loops_over_the_rest():
    def engine_of(model):
        return fedmim.rounds(fedmim.FedAvg(), classification(SIZES, model=model), settings()).engine

    convolution = made(lambda: nn.Unflatten(1, (1, 4)), lambda: nn.Conv1d(1, 2, 3), nn.Flatten, lambda: nn.Linear(4, 3))
    assert engine_of(network()) == "vectorised"
    assert engine_of(made(lambda: nn.Linear(4, 3))) == "vectorised"
    assert engine_of(convolution) == "serial"
    assert engine_of(batch_norm()) == "serial"


@pytest.mark.parametrize("execution", [SERIAL, VECTORISED])
def test_frozen_parameters_stay_and_are_neither_counted_nor_sent(execution):
    model = network()
    model[0].requires_grad_(False)
    task = classification(SIZES, model=model)
    result = fedmim.simulate(fedmim.FedMIM(), task, settings(), execution)
    assert torch.equal(result.model[0].weight, model[0].weight)
    assert torch.equal(result.model[0].bias, model[0].bias)
    assert not torch.equal(result.model[2].weight, model[2].weight)
    assert len(result.params) == 5 * 3 + 3
    assert result.history[0].bytes_up == 4 * 18 * 8


def test_a_model_without_trainable_parameters_is_rejected():
    with pytest.raises(UserError, match=r"^model: "):
        fedmim.rounds(fedmim.FedAvg(), classification(SIZES, model=network().requires_grad_(False)), settings())
