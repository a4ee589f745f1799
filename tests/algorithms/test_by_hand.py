"""Every method's formulas on one number, worked out by hand; each known trap of implementations has its test here."""

from __future__ import annotations

import pytest
import torch
from problems import classification, protocol

import fedmim
from fedmim.algorithms.base import toward


def number(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


class OneNumber(fedmim.Local):
    """A client with f(w) = 1.5 w^2, so that its gradient is 3 w."""

    def grad(self, w):
        return 3 * w


def local(down, slots=None, lr=0.1, steps=4.0):
    down = {name: number(value) for name, value in down.items()}
    return OneNumber(down, {name: number(value) for name, value in (slots or {}).items()}, lr, steps)


def one_step(algorithm, here):
    """The iterate after the first of the client's steps."""
    plan = algorithm.plan(here)
    w = plan.start.clone()
    return algorithm.step(w, algorithm.gradient(w, here), plan).item()


def state(params, **slots):
    return fedmim.ServerState(number(params), {name: number(value) for name, value in slots.items()}, round=3)


def update(algorithm, before, mean, lr=0.1, server_lr=1.0, share=0.3):
    mean = {name: number(value) for name, value in mean.items()}
    return algorithm.update(before, mean, fedmim.Round(3, lr, server_lr, share))


def test_fedavg():
    assert one_step(fedmim.FedAvg(), local({"params": 2.0})) == pytest.approx(2 - 0.1 * 6)
    assert update(fedmim.FedAvg(), state(2.0), {"params": 1.0}, server_lr=0.5).params.item() == pytest.approx(1.5)


def test_fedprox_pulls_by_mu_times_the_distance_neither_half_nor_twice_it():
    """mu/2 ||w - x_t||^2 has the gradient mu (w - x_t): from w = 3, x_t = 2: 3 - 0.1 (9 + 0.5)."""
    here = local({"params": 2.0})
    plan = fedmim.FedProx(mu=0.5).plan(here)
    assert plan.start.item() == 2.0
    moved = fedmim.FedProx(mu=0.5).step(number(3.0), number(9.0), plan)
    assert moved.item() == pytest.approx(3 - 0.1 * (9 + 0.5 * 1))


def test_fedsam_takes_its_gradient_at_the_end_of_the_radius():
    """g = 6 at w = 2, a unit vector up: the second gradient is at 2.5, 7.5."""
    assert one_step(fedmim.FedSAM(radius=0.5), local({"params": 2.0})) == pytest.approx(2 - 0.1 * 7.5)


def test_fedsam_stays_where_there_is_no_gradient():
    assert one_step(fedmim.FedSAM(), local({"params": 0.0})) == 0.0


def test_fedsam_perturbs_each_client_of_a_stack_by_its_own_norm():
    here = OneNumber({}, {}, 0.1, 4.0)
    w = torch.tensor([[3.0, 4.0], [0.0, 2.0]], dtype=torch.float64)
    expected = 3 * (w + 0.5 * torch.tensor([[0.6, 0.8], [0.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(fedmim.FedSAM(radius=0.5).gradient(w, here), expected)


def test_scaffold_subtracts_its_own_variate_and_adds_the_servers():
    """2 - 0.1 (6 - 5 + 3) = 1.6; with the sign reversed it would be 1.2."""
    here = local({"params": 2.0, "control": 3.0}, {"control": 5.0})
    assert one_step(fedmim.Scaffold(), here) == pytest.approx(1.6)


def test_scaffolds_new_variate_is_that_of_option_2():
    """c_i+ = 5 - 3 + (2 - 1.2) / (4 * 0.1) = 4, a change of -1."""
    here = local({"params": 2.0, "control": 3.0}, {"control": 5.0})
    upload, slots = fedmim.Scaffold().finish(number(1.2), here)
    assert slots["control"].item() == pytest.approx(4.0)
    assert set(upload) == {"params"}  # the server finds the change itself
    received = fedmim.Scaffold().receive(upload, here.down, here.lr, here.steps)
    assert received["params"].item() == 1.2
    assert received["control_change"].item() == pytest.approx(-1.0)


def test_scaffold_divides_by_all_clients_not_by_the_active_ones():
    """3 of 10 clients with the mean change -1: c moves by -0.3."""
    after = update(fedmim.Scaffold(), state(2.0, control=3.0), {"params": 1.2, "control_change": -1.0})
    assert after.slots["control"].item() == pytest.approx(2.7)
    assert after.params.item() == pytest.approx(1.2)


def test_control_variates_and_duals_start_at_zero():
    params = torch.randn(5, generator=torch.Generator().manual_seed(0))
    for algorithm in (fedmim.Scaffold(), fedmim.FedDyn(), fedmim.FedCM(), fedmim.FedAdam(), fedmim.FedAvgM()):
        start = algorithm.init(params)
        assert torch.equal(start.params, params)
        assert start.slots
        assert not any(slot.any() for slot in start.slots.values())


def test_fedcm_divides_the_last_direction_by_the_clients_own_steps():
    """2 - 0.1 (0.25 * 6 + 0.75 * 8 / K) with K = 4 and K = 2."""
    for steps, expected in ((4.0, 1.7), (2.0, 1.55)):
        here = local({"params": 2.0, "direction": 8.0}, steps=steps)
        assert one_step(fedmim.FedCM(alpha=0.25), here) == pytest.approx(expected)


def test_fedcms_direction_is_free_of_the_rate_and_points_downhill():
    after = update(fedmim.FedCM(), state(2.0, direction=1.0), {"params": 1.2}, lr=0.1, server_lr=0.5)
    assert after.slots["direction"].item() == pytest.approx(8.0)  # (2 - 1.2) / 0.1
    assert after.params.item() == pytest.approx(1.6)


def test_feddyn():
    """Step from x_t = 2 with h_i = 5: 2 - 0.1 (6 - 5) = 1.9; then at w = 1.9: 1.9 - 0.1 (5.7 - 5 + 0.5 (-0.1))."""
    algorithm, here = fedmim.FedDyn(alpha=0.5), local({"params": 2.0}, {"dual": 5.0})
    assert one_step(algorithm, here) == pytest.approx(1.9)
    second = algorithm.step(number(1.9), number(5.7), algorithm.plan(here))
    assert second.item() == pytest.approx(1.9 - 0.1 * (5.7 - 5 - 0.05))
    upload, slots = algorithm.finish(number(1.2), here)
    assert slots["dual"].item() == pytest.approx(5 + 0.5 * 0.8)
    assert set(upload) == {"params"}


def test_feddyns_server_counts_all_clients():
    """h = 3 - 0.5 * 0.3 * (1.2 - 2) = 3.12; x = 1.2 - 3.12 / 0.5 = -5.04."""
    after = update(fedmim.FedDyn(alpha=0.5), state(2.0, dual=3.0), {"params": 1.2})
    assert after.slots["dual"].item() == pytest.approx(3.12)
    assert after.params.item() == pytest.approx(-5.04)


def test_fedadam_has_no_bias_correction():
    """D = -0.8; m = 0.9 * 1 - 0.08 = 0.82; v = 0.99 * 4 + 0.01 * 0.64 = 3.9664; x = 2 + 0.1 m / (sqrt(v) + 0.01)."""
    after = update(fedmim.FedAdam(), state(2.0, m=1.0, v=4.0), {"params": 1.2}, server_lr=0.1)
    assert after.slots["m"].item() == pytest.approx(0.82)
    assert after.slots["v"].item() == pytest.approx(3.9664)
    assert after.params.item() == pytest.approx(2 + 0.1 * 0.82 / (3.9664**0.5 + 0.01))
    first = update(fedmim.FedAdam(), state(2.0, m=0.0, v=0.0), {"params": 1.2}, server_lr=0.1)
    assert first.params.item() == pytest.approx(2 - 0.1 * 0.08 / (0.08 + 0.01))


def test_fedavgm():
    """v = 0.9 * 1 + 0.8 = 1.7; x = 2 - 0.5 * 1.7."""
    after = update(fedmim.FedAvgM(), state(2.0, momentum=1.0), {"params": 1.2}, server_lr=0.5)
    assert after.slots["momentum"].item() == pytest.approx(1.7)
    assert after.params.item() == pytest.approx(1.15)


def test_fedmim_on_the_client():
    """x_t = 2, increments 0.4 (newest) and 0.8, K = 4: delta = -0.1 and -0.2.

    m1 = 0.6 (-0.1) + 0.3 (-0.2) = -0.12, m2 = 0.9 (-0.1) + 0.1 (-0.2) = -0.11, A = 0.1.
    x <- 2 + 0.12 - 0.1 * 0.1 * 3 * 2.11 = 2.0567
    """
    algorithm = fedmim.FedMIM()
    down = algorithm.broadcast(state(2.0, increment_0=0.4, increment_1=0.8))
    here = OneNumber(down, {}, 0.1, 4.0)
    plan = algorithm.plan(here)
    assert plan.start.item() == pytest.approx(2.11)
    z = algorithm.step(plan.start.clone(), algorithm.gradient(plan.start, here), plan)
    upload, slots = algorithm.finish(z, here)
    assert algorithm.receive(upload, down, 0.1, 4.0)["params"].item() == pytest.approx(2.0567)
    assert slots == {}


def test_fedmim_sends_two_vectors_where_the_server_knows_the_number_of_steps():
    """x - m2 = 2.11 and the inertia, as above; the client's steps are the same to the bit."""
    algorithm = fedmim.FedMIM()
    down = algorithm.broadcast(state(2.0, increment_0=0.4, increment_1=0.8))
    sent = algorithm.send(down, 4.0)
    assert set(down) == {"params", "inertia", "look_ahead"}
    assert set(sent) == {"params", "inertia"}
    assert sent["params"].item() == pytest.approx(2.11)
    assert algorithm.send(sent, 4.0) == sent
    plans = [algorithm.plan(OneNumber(each, {}, 0.1, 4.0)) for each in (down, sent)]
    assert torch.equal(plans[0].start, plans[1].start)
    assert torch.equal(plans[0].shift, plans[1].shift)


def test_fedmims_look_ahead_in_whole_increments_does_not_depend_on_the_steps():
    """0.9 * 0.4 + 0.1 * 0.8 = 0.44 ahead of x_t = 2, whatever K is."""
    algorithm = fedmim.FedMIM(beta_unit="round")
    down = algorithm.broadcast(state(2.0, increment_0=0.4, increment_1=0.8))
    for steps in (1.0, 4.0):
        assert algorithm.plan(OneNumber(down, {}, 0.1, steps)).start.item() == pytest.approx(2.44)
        assert algorithm.send(down, steps)["params"].item() == pytest.approx(2.44)
        assert algorithm.receive({"params": number(2.5)}, down, 0.1, steps)["params"].item() == pytest.approx(2.06)


def test_leap_starts_ahead_and_takes_the_look_ahead_off_again():
    """D = 0.6 * 0.4 + 0.3 * 0.8 = 0.48; z = 2 + 1.5 * 0.48 = 2.72; the mean 2.6 less 0.5 * 0.48 is 2.36."""
    algorithm = fedmim.Leap(fedmim.FedAvg(), (0.6, 0.3), ahead=0.5)
    before = state(2.0, increment_0=0.4, increment_1=0.8)
    down = algorithm.broadcast(before)
    assert {name: value.item() for name, value in down.items()} == pytest.approx({"params": 2.72})
    assert algorithm.plan(OneNumber(down, {}, 0.1, 4.0)).rate == pytest.approx(0.01)
    after = update(algorithm, before, {"params": 2.6})
    assert after.params.item() == pytest.approx(2.36)
    slots = {name: slot.item() for name, slot in after.slots.items()}
    assert slots == pytest.approx({"increment_0": 0.36, "increment_1": 0.4})


def test_fednova_moves_by_the_mean_steps_times_the_mean_change_per_step():
    """Two clients from 2: to 1.2 in 4 steps and to 1 in 2: per step -0.2 and -0.5; 3 * -0.35 = -1.05."""
    algorithm, down = fedmim.FedNova(), {"params": number(2.0)}
    received = [algorithm.receive({"params": number(w)}, down, 0.1, k) for w, k in ((1.2, 4.0), (1.0, 2.0))]
    mean = {name: sum(each[name] for each in received).item() / 2 for name in received[0]}
    assert update(algorithm, state(2.0), mean).params.item() == pytest.approx(0.95)


def test_fedexp_extrapolates_where_the_clients_disagree():
    """From 2 to 1.2 and to 1.6: squares 0.64 and 0.16, mean change -0.6, and 0.4 / (2 (0.36 + 0.001)) is below 1.

    From 2 to 1 and to 2.8: squares 1 and 0.64, mean change -0.1: 0.82 / (2 (0.01 + 0.001)) = 37.27.
    """
    algorithm, before = fedmim.FedExP(epsilon=1e-3), state(2.0, previous=2.5)
    agreed = update(algorithm, before, {"params": 1.4, "square": 0.4})
    assert agreed.params.item() == pytest.approx(1.4)
    apart = update(algorithm, before, {"params": 1.9, "square": 0.82})
    assert apart.params.item() == pytest.approx(2 - 0.1 * 0.82 / 0.022)
    assert algorithm.output(apart).item() == pytest.approx((2 + apart.params.item()) / 2)
    assert algorithm.receive({"params": number(1.2)}, {"params": number(2.0)}, 0.1, 4.0)["square"].item() == (
        pytest.approx(0.64)
    )


def test_a_client_that_takes_part_for_the_first_time_starts_at_the_global_model():
    for algorithm, slot in ((fedmim.FedInit(beta=0.5), "last"), (fedmim.FedLESAM(), "received")):
        down, slots = {"params": number(2.0)}, {slot: number(0.0)}
        assert algorithm.plan(OneNumber(down, slots, 0.1, 4.0, first=1.0)).start.item() == 2.0
        assert algorithm.plan(OneNumber(down, slots, 0.1, 4.0, first=0.0)).start.item() != 2.0
    assert algorithm.plan(OneNumber(down, slots, 0.1, 4.0)).start.item() == pytest.approx(1.9)  # 0.1 towards 0
    inertial = fedmim.FedInit(beta=0.5)
    start = inertial.plan(OneNumber(down, {"last": number(1.0)}, 0.1, 4.0)).start
    assert start.item() == pytest.approx(2 + 0.5 * (2 - 1))


def test_fedmim_moves_every_client_by_the_same_inertia_however_many_steps_it_takes():
    """Without a gradient, K steps of -m1 are sum_j alpha_j (x_{t-j} - x_{t-j-1}) = 0.6 * 0.4 + 0.3 * 0.8 = 0.48."""
    algorithm = fedmim.FedMIM()
    down = algorithm.broadcast(state(2.0, increment_0=0.4, increment_1=0.8))
    for steps in (1, 2, 7):
        here = OneNumber(down, {}, 0.1, float(steps))
        plan = algorithm.plan(here)
        z = plan.start.clone()
        for _ in range(steps):
            z = algorithm.step(z, number(0.0), plan)
        upload, _ = algorithm.finish(z, here)
        assert algorithm.receive(upload, down, 0.1, float(steps))["params"].item() == pytest.approx(2.48)


def test_fedmim_on_the_server_moves_each_increment_a_place_back():
    after = update(
        fedmim.FedMIM((0.5,), (0.1, 0.2, 0.3)),
        state(2.0, increment_0=0.1, increment_1=0.2, increment_2=0.3),
        {"params": 2.7},
    )
    slots = {name: slot.item() for name, slot in after.slots.items()}
    assert slots == pytest.approx({"increment_0": 0.7, "increment_1": 0.1, "increment_2": 0.2})


def test_fedmims_increment_is_that_of_the_global_model_also_at_another_server_rate():
    after = update(fedmim.FedMIM(), state(2.0, increment_0=0.1, increment_1=0.2), {"params": 2.7}, server_lr=0.5)
    assert after.params.item() == pytest.approx(2.35)
    assert after.slots["increment_0"].item() == pytest.approx(0.35)


def test_a_server_rate_of_one_gives_the_mean_to_the_last_bit():
    x, mean = number(0.1), number(0.3)
    assert toward(x, mean, 1.0).item() == 0.3


def test_weight_decay_and_clipping_are_those_of_the_gradient_in_any_plan():
    """w = 2, g = 6 clipped to 3, decay 0.5: g becomes 3 + 0.5 * 2 = 4, under keep 0.9, rate 0.2 and shift 0.05."""
    plan = fedmim.Plan(start=number(2.0), rate=0.2, keep=0.9, shift=number(0.05))
    plan = plan.with_weight_decay(0.5).scaled(0.5)
    moved = fedmim.FedAvg().step(number(2.0), number(6.0), plan)
    assert moved.item() == pytest.approx(0.9 * 2 - 0.2 * 4 + 0.05)


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_plan_may_have_whole_numbers(engine, clip_norm):
    """rate=1 is as good as rate=1.0 in a method of the user's own."""

    class Whole(fedmim.FedAvg):
        def plan(self, local):
            return fedmim.Plan(start=local.down["params"], rate=1, keep=1)

    plain = {"rounds": 1, "participation": 1.0, "batch_size": 4, "weight_decay": 0.0, "clip_norm": clip_norm}
    whole = fedmim.simulate(Whole(), classification(), *protocol(**plain, engine=engine))
    expected = fedmim.simulate(fedmim.FedAvg(), classification(), *protocol(**plain, engine=engine, lr=1.0))
    assert torch.equal(whole.params, expected.params)
