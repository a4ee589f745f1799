"""What the methods after FedMIM are of each other: compositions, special cases, FedMIM's own identity for the leap."""

from __future__ import annotations

import pytest
import torch
from problems import Quadratics, busy, classification, quadratic_protocol

import fedmim

ENGINES = ("serial", "vectorised")


def final(algorithm, **overrides):
    return fedmim.simulate(algorithm, classification(), *busy(**overrides)).params


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("named", "composed"),
    [
        (fedmim.FedSAM(0.3), fedmim.Sharp(fedmim.FedAvg(), 0.3)),
        (fedmim.MoFedSAM(0.4, 0.3), fedmim.Sharp(fedmim.FedCM(0.4), 0.3)),
        (fedmim.FedGamma(0.3), fedmim.Sharp(fedmim.Scaffold(), 0.3)),
    ],
)
def test_the_sharpness_aware_methods_are_sharp_around_others_to_the_last_bit(named, composed, engine):
    assert torch.equal(final(named, engine=engine), final(composed, engine=engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("inner", [fedmim.FedAvg(), fedmim.FedDyn(), fedmim.Scaffold(), fedmim.FedAdam()])
@pytest.mark.parametrize("alpha", [(), (0.0, 0.0)])
def test_a_leap_without_weights_is_the_inner_method_to_the_last_bit(inner, alpha, engine):
    assert torch.equal(final(fedmim.Leap(inner, alpha), engine=engine), final(inner, engine=engine))


def test_fedacg_is_leap_around_fedprox_at_its_learning_rate_over_a():
    acg = final(fedmim.FedACG(0.8, 0.3), lr=0.2)
    leap = final(fedmim.Leap(fedmim.FedProx(0.3), (0.8,)), lr=0.2 / (1 - 0.8))
    torch.testing.assert_close(acg, leap, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("tau", [1, 3])
def test_ghbm_is_fedmim_with_equal_weights_at_its_learning_rate_over_1_minus_b(tau):
    ghbm = final(fedmim.GHBM(0.9, tau), lr=0.03, rounds=7)
    mim = final(fedmim.FedMIM((0.9 / tau,) * tau, ()), lr=0.03 / (1 - 0.9), rounds=7)
    torch.testing.assert_close(ghbm, mim, rtol=1e-10, atol=1e-11)


def test_scaffold_m_at_one_is_scaffold_and_mimelite_without_momentum_fedavg():
    torch.testing.assert_close(final(fedmim.ScaffoldM(1.0)), final(fedmim.Scaffold()), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(final(fedmim.MimeLite(0.0)), final(fedmim.FedAvg()), rtol=1e-12, atol=1e-13)


def test_fednova_is_fedavg_where_all_clients_take_the_same_steps():
    same = {"local_steps": 3}
    torch.testing.assert_close(final(fedmim.FedNova(), **same), final(fedmim.FedAvg(), **same), rtol=1e-12, atol=1e-13)
    assert (final(fedmim.FedNova()) - final(fedmim.FedAvg())).abs().max() > 1e-4


def test_fedinit_without_relaxation_is_fedavg():
    assert torch.equal(final(fedmim.FedInit(0.0)), final(fedmim.FedAvg()))


@pytest.mark.parametrize("alpha", [(0.6,), (0.6, 0.3), (0.3, 0.2, 0.1)])
def test_lemma_5_holds_for_the_leap(alpha):
    """u_{t+1} = u_t - eta mean_i sum_k g_{i,k}, for unequal clients, with u_t as in FedMIM's Lemma 5.

    The sum of a client's gradients follows from its own part of the round, x_i - z = -A eta sum_k g.
    """
    settings, execution = busy(engine="serial", rounds=6)
    method = fedmim.Leap(fedmim.FedAvg(), alpha)
    run = fedmim.rounds(method, classification(), settings, execution)
    models, starts = [run.params], []
    while run.state.round < settings.rounds:
        starts.append(method.broadcast(run.state)["params"])
        next(run)
        models.append(run.params)

    def past(t):
        return models[max(t, 0)]

    def inertial_point(t):
        terms = (sum(alpha[j:]) * (past(t - j) - past(t - j - 1)) for j in range(len(alpha)))
        return models[t] + sum(terms) / (1 - sum(alpha))

    for t, z in enumerate(starts):
        gradients = (z - models[t + 1]) / (1 - sum(alpha))  # eta times the mean over clients of their sums
        torch.testing.assert_close(inertial_point(t + 1), inertial_point(t) - gradients, rtol=1e-11, atol=1e-11)


def test_the_leap_takes_its_gradients_where_all_of_the_inertia_is():
    """On f(w) = |w - b|^2 / 2 with K = 1, x_{t+1} = x_t + D - A eta (x_t + (1 + c) D - b): one line to check all by."""
    problem = Quadratics.draw(clients=1, dimension=1, seed=3)
    h, b = problem.curvatures[0, 0, 0].item(), problem.optima[0, 0].item()
    alpha, ahead, lr = (0.4, 0.3), 1.5, 0.2
    protocol = quadratic_protocol(participation=1.0, rounds=6, lr=lr, local_steps=1)
    run = fedmim.rounds(fedmim.Leap(fedmim.FedAvg(), alpha, ahead), problem.task(), *protocol)
    xs = [run.params.item()]
    for _ in run:
        x = [*xs[::-1], xs[0], xs[0]]  # newest first; before the first round the model stood still
        inertia = sum(a * (x[j] - x[j + 1]) for j, a in enumerate(alpha))
        xs.append(xs[-1] + inertia - (1 - sum(alpha)) * lr * h * (xs[-1] + (1 + ahead) * inertia - b))
        assert run.params.item() == pytest.approx(xs[-1], rel=1e-10)


REACHING = {  # methods that theory says reach the common optimum at partial participation, and at what settings
    "SCAFFOLD-M": (fedmim.ScaffoldM(0.5), {"rounds": 400}),
    "leap around SCAFFOLD": (fedmim.Leap(fedmim.Scaffold(), (0.3, 0.2)), {"rounds": 300}),
    "leap around FedDyn": (
        fedmim.Leap(fedmim.FedDyn(1.0), (0.3,)),
        {"rounds": 600, "lr": 0.3, "local_steps": 3},
    ),
}


@pytest.mark.parametrize("name", REACHING)
def test_corrected_methods_reach_the_optimum_of_heterogeneous_quadratics(name):
    algorithm, settings = REACHING[name]
    problem = Quadratics.draw(clients=10, dimension=3, seed=1)
    protocol = quadratic_protocol(**{"participation": 0.3} | settings)
    params = fedmim.simulate(algorithm, problem.task(), *protocol).params
    assert (params - problem.optimum).norm() < 1e-7


def test_fedspeed_reaches_the_optimum_where_all_clients_take_part():
    """Its server averages x_i - dual_i / p of those that took part, so client sampling leaves a noise of its own."""
    problem = Quadratics.draw(clients=10, dimension=3, seed=1)
    protocol = quadratic_protocol(participation=1.0, rounds=800, lr=0.3, local_steps=10)
    params = fedmim.simulate(fedmim.FedSpeed(1.0, 0.0), problem.task(), *protocol).params
    assert (params - problem.optimum).norm() < 1e-7


def test_leap_stops_at_fedavgs_biased_point_of_the_rate_a_eta():
    """Where the model stands still D is zero, and the clients' steps are FedAvg's at A eta."""
    problem = Quadratics.draw(clients=10, dimension=3, seed=1)
    settings = {"participation": 1.0, "rounds": 300, "local_steps": 5}
    leap = fedmim.simulate(
        fedmim.Leap(fedmim.FedAvg(), (0.3, 0.2), 0.5), problem.task(), *quadratic_protocol(lr=0.3, **settings)
    )
    average = fedmim.simulate(fedmim.FedAvg(), problem.task(), *quadratic_protocol(lr=0.15, **settings))
    torch.testing.assert_close(leap.params, average.params, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_weight_decay_and_clipping_reach_a_step_of_ones_own(engine):
    """A step that does what the built-in one does by itself is FedAvg, whatever decay and clipping are."""

    class Plain(fedmim.FedAvg):
        def step(self, w, g, plan):
            return w - plan.rate * g

    for change in ({}, {"weight_decay": 0.5}, {"clip_norm": 0.2}, {"clip_norm": None, "weight_decay": 0.0}):
        torch.testing.assert_close(
            final(Plain(), engine=engine, **change), final(fedmim.FedAvg(), engine=engine, **change),
            rtol=1e-12, atol=1e-13,
        )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", ["plan", "finish"])
def test_a_minibatch_gradient_outside_of_a_step_is_an_error_that_names_the_remedy(where, engine):
    class Wrong(fedmim.FedAvg):
        def plan(self, local):
            if where == "plan":
                local.grad(local.down["params"])
            return super().plan(local)

        def finish(self, w, local):
            if where == "finish":
                local.grad(w)
            return super().finish(w, local)

    with pytest.raises(ValueError, match=r"use local\.full_gradient in plan and finish"):
        final(Wrong(), engine=engine)
