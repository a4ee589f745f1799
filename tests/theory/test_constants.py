"""The constants, against the derivation done again with sympy, by hand, and in limiting cases; u_t by hand."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import sympy
import torch

from fedmim.errors import UserError
from fedmim.theory import (
    FederationShape,
    Inertia,
    ProblemConstants,
    Theorem1,
    Theorem2,
    auxiliary_sequence,
    increments,
    largest_lambda,
    largest_lr,
    lr_caps,
    m_constants,
    p_constants,
    v_constant,
)

CONSTANTS = ProblemConstants(L=2.0, sigma=1.5, G=0.7, B=1.25, gap=3.0, C=5.0, mu=0.5)
FEDERATION = FederationShape(clients=20, active=4, steps=5)
INERTIA = Inertia((0.6, 0.3), (0.9, 0.1))
# The tightest cap here is 1 / (64 * 5 * 2 * 1.5625) = 0.001 and a little less.
LR = 5e-4

L, K, S, A, ETA, RHO, J = sympy.symbols("L K S A eta rho J", positive=True)
SIGMA2, G2, B2, GRAD2, BY_ALPHA, BY_P, C = sympy.symbols("sigma2 G2 B2 grad2 by_alpha by_P C", positive=True)


def derived_descent():
    """f(u_{t+1}) - f(u_t) at most this, by the steps of the appendix done again.

    grad2 is ||grad f(u_t)||^2; by_alpha and by_P are sum_j alpha_j ||delta_{t-j}||^2 and sum_j P_j ||delta_{t-j}||^2.
    """
    # ||grad f_i(y)||^2 in the mean over clients, less the part of the drift: the four-term split.
    local = 4 * L**2 * BY_P + 4 * (G2 + B2 * GRAD2)
    # One step adds noise and 2K times the convex mixture of gradient and increments; K steps add up to 3K of these.
    drift = 3 * K * (2 * K * (A * ETA**2 * local + BY_ALPHA) + A**2 * ETA**2 * SIGMA2)
    # Mean over a sample of S: the mean over all and 1/S of the mean square; twice, and the noise.
    lagged = 4 * L**2 * (drift + BY_P)
    mean_square = 2 * (lagged + 4 * GRAD2 + lagged + 4 * G2 / S + 4 * B2 * GRAD2) + 2 * SIGMA2 / (K * S)
    big_eta = K * ETA
    return (
        -big_eta / 2 * GRAD2 + big_eta**2 * L / 2 * mean_square + sympy.Rational(3, 2) * big_eta * L**2 * (drift + BY_P)
    )


def coefficient(expression, symbol):
    return sympy.expand(expression).coeff(symbol, 1)


def test_the_floor_is_that_of_the_derivation_where_its_last_step_is_an_equality():
    """Step (d) replaces 8 eta^2 L^3 by 3 eta L^2 / 2 and the like, which are equal at the cap 3 / (16 K L)."""
    a, rho, j = INERTIA.A, INERTIA.rho, INERTIA.J
    p_sum = rho**2 + FEDERATION.steps**2 * j**2 * (1 - a) ** 2 / a**2
    increments = {BY_ALPHA: (1 - A) * ETA**2 * C, BY_P: p_sum * ETA**2 * C}  # every ||delta||^2 <= eta^2 C
    at_cap = sympy.expand(derived_descent().subs(increments))
    at_cap = at_cap.subs(ETA, 3 / (16 * K * L)) / (3 / (16 * L))
    values = {L: CONSTANTS.L, K: FEDERATION.steps, S: FEDERATION.active, A: a, B2: CONSTANTS.B**2}
    expected = {
        "noise": float(coefficient(at_cap, SIGMA2).subs(values)) * CONSTANTS.sigma**2,
        "heterogeneity": float(coefficient(at_cap, G2).subs(values)) * CONSTANTS.G**2,
        "inertia": float(coefficient(at_cap, C).subs(values)) * CONSTANTS.C,
    }
    bound = Theorem1(CONSTANTS, FEDERATION, INERTIA, LR)
    up = 3 / (16 * FEDERATION.steps * CONSTANTS.L) / LR  # to the power 1 or 2, the order of a term
    terms = {name: term * bound.lam for name, term in bound.terms.items()}
    assert terms["noise, over S"] * up + terms["noise in the drift"] * up**2 == pytest.approx(expected["noise"])
    assert terms["heterogeneity, over S"] * up + terms["heterogeneity in the drift"] * up**2 == pytest.approx(
        expected["heterogeneity"]
    )
    assert terms["inertia"] * up**2 == pytest.approx(expected["inertia"])


def test_below_the_cap_the_floor_is_at_least_that_of_the_derivation():
    rest = derived_descent().subs(GRAD2, 0)
    draw = random.Random(3)
    for _ in range(50):
        inertia = Inertia((draw.uniform(0, 0.5), draw.uniform(0, 0.4)), (draw.uniform(0, 1), draw.uniform(0, 1)))
        constants = ProblemConstants(
            L=draw.uniform(0.1, 5), sigma=draw.uniform(0, 3), G=draw.uniform(0, 3), B=draw.uniform(1, 3), C=2.0
        )
        federation = FederationShape(50, draw.randint(1, 50), draw.randint(1, 30))
        lr = draw.uniform(0.01, 0.99) * largest_lr(constants, federation, inertia)
        k = federation.steps
        values = {L: constants.L, K: k, S: federation.active, A: inertia.A, ETA: lr}
        values |= {SIGMA2: constants.sigma**2, G2: constants.G**2, BY_ALPHA: (1 - inertia.A) * lr**2 * 2.0}
        values |= {BY_P: sum(p_constants(inertia, k)) * lr**2 * 2.0}
        bound = Theorem1(constants, federation, inertia, lr)
        assert float(rest.subs(values)) / (k * lr) <= bound.floor * bound.lam * (1 + 1e-12)


@pytest.mark.parametrize("b", [1.0, 1.3, 4.0])
@pytest.mark.parametrize("a", [1.0, 0.5, 0.05])
def test_lambda_is_at_most_what_the_derivation_leaves_of_the_gradient(a, b):
    constants, inertia = replace(CONSTANTS, B=b), Inertia((1 - a,))
    left = -coefficient(derived_descent(), GRAD2) / (K * ETA)
    for part in (0.01, 0.5, 0.999):
        lr = part * largest_lr(constants, FEDERATION, inertia)
        values = {L: constants.L, K: FEDERATION.steps, S: FEDERATION.active, A: a, B2: b**2, ETA: lr}
        assert 0 < largest_lambda(constants, FEDERATION, inertia, lr) <= float(left.subs(values)) < 0.5


def test_v_is_the_sum_over_j_at_the_cap_of_the_learning_rate():
    alphas, betas = sympy.symbols("a0:3", positive=True), sympy.symbols("b0:3", positive=True)
    own, rho, eta = 1 - sum(alphas), sum(betas), sympy.Rational(3, 16) / (K * L)
    ps = [rho * beta + K**2 * 3 * (1 - own) ** 2 / own**2 for beta in betas]
    ms = [alpha + 4 * own * L**2 * eta**2 * p for alpha, p in zip(alphas, ps, strict=True)]
    total = sum(6 * K**2 * m + p for m, p in zip(ms, ps, strict=True))
    weights = (0.3, 0.2, 0.1), (0.5, 0.2, 0.05)
    values = dict(zip((*alphas, *betas), itertools.chain(*weights), strict=True)) | {K: 7, L: 2.0}
    assert v_constant(Inertia(*weights), 7) == pytest.approx(float(total.subs(values)))


def test_the_constants_by_hand():
    """A = 1/2, rho = 3/4, J = 2, K = 3: the lag is 9 * 2 * 1 = 18."""
    inertia = Inertia((0.25, 0.25), (0.5, 0.25))
    assert (inertia.A, inertia.rho, inertia.J) == (0.5, 0.75, 2)
    assert p_constants(inertia, 3) == pytest.approx((18.375, 18.1875))
    # 4 A L^2 eta^2 = 2 * 4 * 0.01 = 0.08
    assert m_constants(replace(CONSTANTS, L=2.0), inertia, 3, 0.1) == pytest.approx((0.25 + 1.47, 0.25 + 1.455))
    # 6 * 9 / 2 + (27/64 + 1)(9/16 + 9 * 4)
    assert v_constant(inertia, 3) == pytest.approx(27 + (27 / 64 + 1) * 36.5625)


def test_a_shorter_list_of_weights_counts_as_zeros():
    assert p_constants(Inertia((0.5,), (0.2, 0.4)), 3) == p_constants(Inertia((0.5, 0.0), (0.2, 0.4)), 3)
    assert m_constants(CONSTANTS, Inertia((0.5, 0.1), (0.2,)), 3, 0.1) == m_constants(
        CONSTANTS, Inertia((0.5, 0.1), (0.2, 0.0)), 3, 0.1
    )


def test_without_inertia_v_is_the_look_ahead_alone_and_nothing_for_fedavg():
    assert v_constant(Inertia((), (0.9, 0.1)), 10) == pytest.approx(27 / 32 + 1)
    assert v_constant(Inertia((0.0, 0.0), (0.5,)), 10) == pytest.approx(0.25 * (27 / 32 + 1))
    assert v_constant(Inertia(), 10) == 0
    assert p_constants(Inertia(), 10) == m_constants(CONSTANTS, Inertia(), 10, 0.1) == ()


def test_the_appendix_condition_is_the_tightest_cap_and_the_largest_learning_rate_is_its_root():
    for a, b, k in itertools.product((1.0, 0.5, 0.01), (1.0, 2.0), (1, 20)):
        constants, federation, inertia = replace(CONSTANTS, B=b), FederationShape(steps=k), Inertia((1 - a,))
        caps = list(lr_caps(constants, federation, inertia).values())
        assert caps[:2] == pytest.approx([1 / (4 * 2 * k * a**0.5), 3 / (16 * k * 2)])
        assert largest_lr(constants, federation, inertia) == caps[2] == min(caps)
        r = k * caps[2] * 2
        assert 64 * r * b**2 + 72 * r**2 * a * b**2 == pytest.approx(1)
        assert largest_lambda(constants, federation, inertia, caps[2] * (1 - 1e-9)) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-9, 1.5, 20, 30])
def test_a_learning_rate_above_a_cap_is_an_error_that_names_the_broken_condition(factor):
    lr = factor * largest_lr(CONSTANTS, FEDERATION, INERTIA)
    first = "64 K eta L B^2" if factor < 19 else "eta <= 3 / (16 K L)"
    with pytest.raises(UserError) as error:
        Theorem1(CONSTANTS, FEDERATION, INERTIA, lr)
    assert str(error.value).startswith("lr: ")
    assert first in str(error.value)


def test_lambda_out_of_its_range_is_an_error():
    largest = largest_lambda(CONSTANTS, FEDERATION, INERTIA, LR)
    assert Theorem1(CONSTANTS, FEDERATION, INERTIA, LR).lam == largest
    assert Theorem1(CONSTANTS, FEDERATION, INERTIA, LR, lam=largest / 2).lam == largest / 2
    for lam in (0, -0.1, largest * (1 + 1e-12), 0.5):
        with pytest.raises(UserError, match="lam: must be above 0 and at most"):
            Theorem1(CONSTANTS, FEDERATION, INERTIA, LR, lam=lam)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProblemConstants(B=0.99), "B: must be at least 1"),
        (lambda: ProblemConstants(L=0), "L: must be above 0"),
        (lambda: ProblemConstants(sigma=-1), "sigma: must be finite and not negative"),
        (lambda: ProblemConstants(G=float("nan")), "G: must be finite"),
        (lambda: ProblemConstants(gap=0), "gap: must be above 0"),
        (lambda: ProblemConstants(L=1, mu=2), "mu: must be above 0 and at most L"),
        (lambda: ProblemConstants(mu=0), "mu: must be above 0"),
        (lambda: ProblemConstants(C=float("inf")), "C: must be finite"),
        (lambda: FederationShape(clients=5, active=6), "active: must be at most the number of clients"),
        (lambda: FederationShape(steps=0), "steps: must be a whole number of at least 1"),
        (lambda: Inertia((0.6, 0.4)), "alpha: the weights must sum to less than 1"),
        (lambda: Inertia((-0.1,)), "alpha: the weights must be finite and not negative"),
        (lambda: Inertia((), (0.5, -0.3)), "beta: the weights must be finite and not negative"),
        (lambda: Theorem1(CONSTANTS, FEDERATION, INERTIA, 0.0), "lr: must be a finite number above 0"),
        (lambda: Theorem2(replace(CONSTANTS, mu=None), FEDERATION, INERTIA, LR), "mu: Theorem 2 needs"),
    ],
)
def test_what_the_theorems_do_not_allow_is_an_error(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(message)


def test_c_is_the_mean_gradient_at_the_start_where_it_is_not_given():
    """2 * 1.25^2 * 2 * 3 + 0.49 / 4 + 2.25 / 20."""
    assert replace(CONSTANTS, C=None).gradient_bound(FEDERATION) == pytest.approx(18.75 + 0.1225 + 0.1125)
    assert CONSTANTS.gradient_bound(FEDERATION) == 5.0


def test_u_by_hand():
    """alpha = (1/2, 1/4), A = 1/4: weights 3 on the newest increment and 1 on the one before."""
    models = [torch.tensor([float(x)]) for x in (1, 2, 4, 3)]
    u = auxiliary_sequence(models, (0.5, 0.25))
    assert [float(point) for point in u] == [1, 2 + 3, 4 + 3 * 2 + 1, 3 - 3 + 2]
    assert [float(delta) for delta in increments(models, 2)] == [0, -0.5, -1, 0.5]


@pytest.mark.parametrize("alpha", [(), (0.0,), (0.0, 0.0)])
def test_without_inertia_u_is_x(alpha):
    models = list(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert all(torch.equal(u, x) for u, x in zip(auxiliary_sequence(models, alpha), models, strict=True))
