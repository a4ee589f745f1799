"""FedMIM's own identities: Lemma 5, the recursion of the increments, and the methods that it contains."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from problems import busy, classification

import fedmim

WEIGHTS = {
    "J=1": ((0.6,), (0.9,)),
    "J=2": ((0.6, 0.3), (0.9, 0.1)),
    "J=3": ((0.3, 0.2, 0.1), (0.5, -0.3, 0.2)),
    "shorter alpha": ((0.5,), (0.2, 0.4)),
    "shorter beta": ((0.3, 0.4), ()),
}


@dataclass(frozen=True)
class RecordingFedMIM(fedmim.FedMIM):
    """FedMIM that also notes each point and raw gradient (serial engine: one client after the other)."""

    taken: list = field(default_factory=list, compare=False)

    def gradient(self, w, local):
        g = super().gradient(w, local)
        self.taken.append((w.clone(), g.clone()))
        return g


def used(taken, settings):
    """The gradients as the step uses them: clipped, with weight decay at the point where they were taken."""
    clip = settings.clip_norm or float("inf")
    return [g * min(1.0, clip / g.norm().item()) + settings.weight_decay * w for w, g in taken]


def walk(alpha, beta, task, settings, execution):
    """The models x_0 .. x_T and, for each round, the gradients used in it."""
    method = RecordingFedMIM(alpha, beta)
    run = fedmim.rounds(method, task, settings, execution)
    models, gradients = [run.params], []
    for _ in run:
        models.append(run.params)
        gradients.append(used(method.taken, settings))
        method.taken.clear()
    return models, gradients


def past(models, t):
    return models[max(t, 0)]


def inertial_point(models, t, alpha):
    """u_t = x_t + (1/A) sum_j (sum_{s>=j} alpha_s) (x_{t-j} - x_{t-j-1})."""
    u = models[t].clone()
    for j in range(len(alpha)):
        u += sum(alpha[j:]) * (past(models, t - j) - past(models, t - j - 1)) / (1 - sum(alpha))
    return u


@pytest.mark.parametrize("overrides", [{}, {"weight_decay": 0.0, "clip_norm": None, "lr_decay": 1.0}])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_lemma_5_the_inertial_point_moves_by_the_plain_gradients_whatever_the_clients(weights, overrides):
    alpha, beta = WEIGHTS[weights]
    settings, execution = busy(**overrides, engine="serial", rounds=6)
    models, gradients = walk(alpha, beta, classification(), settings, execution)
    active = 4  # of 7 at participation 0.6
    for t, taken in enumerate(gradients):
        rate = settings.lr * settings.lr_decay**t
        expected = inertial_point(models, t, alpha) - rate / active * sum(taken)
        torch.testing.assert_close(inertial_point(models, t + 1, alpha), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_increments_follow_their_recursion_for_equal_clients(weights):
    """delta_{t+1} = A eta (mean gradient) + sum_j alpha_j delta_{t-j}."""
    alpha, beta = WEIGHTS[weights]
    settings, execution = busy(engine="serial", rounds=6)
    models, gradients = walk(alpha, beta, classification(sizes=(9,) * 7), settings, execution)
    steps = 2 * 3  # two epochs of ceil(9 / 4) batches

    def delta(t):
        return -(past(models, t) - past(models, t - 1)) / steps

    for t, taken in enumerate(gradients):
        assert len(taken) == 4 * steps
        rate = settings.lr * settings.lr_decay**t
        inertia = sum(weight * delta(t - j) for j, weight in enumerate(alpha))
        expected = (1 - sum(alpha)) * rate * sum(taken) / len(taken) + inertia
        torch.testing.assert_close(delta(t + 1), expected, rtol=1e-11, atol=1e-12)


def final(algorithm, **overrides):
    return fedmim.simulate(algorithm, classification(), *busy(**overrides))


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
@pytest.mark.parametrize("weights", [((), ()), ((0.0,), (0.0,)), ((0.0, 0.0, 0.0), ()), ((), (0.0, 0.0))])
def test_without_weights_fedmim_is_fedavg_to_the_last_bit(weights, engine):
    assert torch.equal(
        final(fedmim.FedMIM(*weights), engine=engine).params, final(fedmim.FedAvg(), engine=engine).params
    )


@pytest.mark.parametrize("alpha", [0.1, 0.6, 0.9])
@pytest.mark.parametrize("beta", [(), (0.0,)])
def test_one_step_of_inertia_is_fedcm_at_a_constant_rate(alpha, beta):
    mim = final(fedmim.FedMIM(alpha=(alpha,), beta=beta), lr_decay=1.0, rounds=8)
    cm = final(fedmim.FedCM(alpha=1 - alpha), lr_decay=1.0, rounds=8)
    torch.testing.assert_close(mim.params, cm.params, rtol=1e-11, atol=1e-12)


def test_one_step_of_inertia_is_not_fedcm_at_a_falling_rate():
    """delta carries the rate of its own round, FedCM's direction that of the present one."""
    mim, cm = final(fedmim.FedMIM((0.6,), ())), final(fedmim.FedCM(alpha=0.4))
    assert (mim.params - cm.params).abs().max() > 1e-3


def test_a_look_ahead_alone_changes_the_path():
    assert (final(fedmim.FedMIM((), (0.9,))).params - final(fedmim.FedAvg()).params).abs().max() > 1e-3


@pytest.mark.parametrize("history", ["catch-up", "broadcast"])
def test_the_history_policy_changes_nothing_but_the_bytes(history):
    assert torch.equal(final(fedmim.FedMIM(), history=history).params, final(fedmim.FedMIM()).params)
