"""Hyper-parameters are checked when a method is made; the message begins with the field's name."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from functools import partial

import pytest
from problems import classification

import fedmim
from fedmim.algorithms import METHODS, PAPER

NAN, INF = math.nan, math.inf
LEAP, SHARP = partial(fedmim.Leap, fedmim.FedAvg()), partial(fedmim.Sharp, fedmim.FedAvg())
UNFIT = [
    *((fedmim.FedMIM, "alpha", value) for value in ((1.0,), (0.5, 0.5), (0.6, 0.3, 0.1), (0.1,) * 10, (0.9, 0.2))),
    *((fedmim.FedMIM, "alpha", value) for value in ((-0.1,), (0.5, -0.1), (NAN,), (INF,), (0.1, -INF))),
    *((fedmim.FedMIM, "beta", value) for value in ((NAN,), (0.1, INF), (-INF,), 0.5)),
    *((fedmim.FedAdam, "beta1", value) for value in (-0.1, 1.0, 2.0, NAN, INF)),
    *((fedmim.FedAdam, "beta2", value) for value in (-0.1, 1.0, NAN)),
    *((fedmim.FedAdam, "tau", value) for value in (0.0, -1e-3, NAN, INF)),
    *((fedmim.FedCM, "alpha", value) for value in (0.0, -0.1, 1.1, NAN, INF)),
    *((fedmim.FedDyn, "alpha", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedSAM, "radius", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedProx, "mu", value) for value in (-0.1, NAN, INF)),
    *((fedmim.FedAvgM, "momentum", value) for value in (-0.1, 1.0, NAN)),
    (fedmim.FedMIM, "beta_unit", "increment"),
    *((fedmim.GHBM, "momentum", value) for value in (-0.1, 1.0, NAN)),
    *((fedmim.GHBM, "tau", value) for value in (0, -1, 2.0)),
    *((fedmim.FedACG, "momentum", value) for value in (-0.1, 1.0, NAN)),
    *((fedmim.FedACG, "mu", value) for value in (-0.1, NAN, INF)),
    *((fedmim.MoFedSAM, name, value) for name in ("alpha", "radius") for value in (0.0, -0.1, NAN)),
    *((fedmim.FedGamma, "radius", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedSpeed, "prox", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedSpeed, "rho", value) for value in (-0.1, NAN, INF)),
    *((fedmim.FedSpeed, "alpha", value) for value in (-0.1, 1.1, NAN)),
    *((fedmim.FedSMOO, name, value) for name in ("prox", "radius") for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedLESAM, "radius", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedInit, "beta", value) for value in (-0.1, NAN, INF)),
    *((fedmim.ScaffoldM, "beta", value) for value in (0.0, -0.1, 1.1, NAN)),
    *((fedmim.FedExP, "epsilon", value) for value in (0.0, -0.1, NAN, INF)),
    *((fedmim.FedYogi, name, value) for name in ("beta1", "beta2") for value in (-0.1, 1.0, NAN)),
    *((fedmim.FedYogi, "tau", value) for value in (0.0, NAN)),
    *((fedmim.FedAdagrad, "beta1", value) for value in (-0.1, 1.0, NAN)),
    *((fedmim.FedAdagrad, "tau", value) for value in (0.0, NAN)),
    *((fedmim.MimeLite, "momentum", value) for value in (-0.1, 1.0, NAN)),
    *((LEAP, "alpha", value) for value in ((1.0,), (0.6, 0.4), (-0.1,), (NAN,), 0.5)),
    *((LEAP, "ahead", value) for value in (-0.5, NAN, INF)),
    *((SHARP, "radius", value) for value in (0.0, -0.1, NAN, INF)),
]
FIT = [
    *((fedmim.FedMIM, "alpha", value) for value in ((), (0.0,), (0.99,), (0.6, 0.3, 0.0999))),
    *((fedmim.FedMIM, "beta", value) for value in ((), (-0.9, 3.0), (1.0,), (0.0, 0.0))),
    (fedmim.FedAdam, "beta1", 0.0),
    (fedmim.FedCM, "alpha", 1.0),
    (fedmim.FedProx, "mu", 0.0),
    (fedmim.FedAvgM, "momentum", 0.0),
]


@pytest.mark.parametrize(("method", "field", "value"), UNFIT)
def test_an_unfit_value_is_rejected_by_name(method, field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        method(**{field: value})


@pytest.mark.parametrize(("method", "field", "value"), FIT)
def test_a_fit_value_is_taken_as_it_is(method, field, value):
    assert getattr(method(**{field: value}), field) == value


def test_weights_that_sum_to_one_are_rejected_although_their_float_sum_is_less():
    assert 0.6 + 0.3 + 0.1 < 1
    with pytest.raises(ValueError, match=r"^alpha: "):
        fedmim.FedMIM((0.6, 0.3, 0.1))


def test_lists_of_weights_become_tuples():
    assert fedmim.FedMIM([0.6, 0.3], [0.9]) == fedmim.FedMIM((0.6, 0.3), (0.9,))


def test_the_defaults_are_those_of_the_papers():
    assert fedmim.FedMIM() == fedmim.FedMIM(alpha=(0.6, 0.3), beta=(0.9, 0.1))
    assert fedmim.FedAdam() == fedmim.FedAdam(beta1=0.9, beta2=0.99, tau=1e-2)
    assert fedmim.FedCM().alpha == 0.1
    assert fedmim.FedDyn().alpha == 0.1
    assert fedmim.FedSAM().radius == 0.1
    assert fedmim.FedProx().mu == 0.01
    assert fedmim.FedAvgM().momentum == 0.9
    assert {name: method.default_server_lr for name, method in METHODS.items() if method.default_server_lr != 1} == {
        "fedadam": 0.1,
        "fedyogi": 0.1,
        "fedadagrad": 0.1,
    }


def test_the_seven_methods_of_the_paper_and_the_others_are_listed():
    paper = {"fedavg", "fedadam", "scaffold", "fedcm", "feddyn", "fedsam", "fedmim"}
    successors = "ghbm fedacg mofedsam fedgamma fedspeed fedsmoo fedlesam fedinit scaffoldm fednova fedexp mimelite"
    assert set(PAPER) == paper
    assert set(METHODS) >= paper | {"fedprox", "fedavgm", "fedyogi", "fedadagrad", *successors.split()}
    assert all(getattr(fedmim, method.__name__) is method for method in METHODS.values())


INNER = fedmim.FedAvg()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedmim.Leap(fedmim.FedMIM()), r"^leap: FedMIM already has inertia"),
        (lambda: fedmim.Leap(fedmim.GHBM()), r"^leap: GHBM already has inertia"),
        (lambda: fedmim.Leap(fedmim.FedACG()), r"^leap: FedACG already has inertia"),
        (lambda: fedmim.Leap(fedmim.Leap(INNER)), r"^leap: FedAvg \+ leap already has inertia"),
        (lambda: fedmim.Leap(fedmim.Sharp(fedmim.Leap(INNER))), r"^leap: FedAvg \+ leap \+ sharp already has inertia"),
        (lambda: fedmim.Sharp(fedmim.FedSAM()), r"^sharp: FedSAM is already sharpness-aware"),
        (lambda: fedmim.Sharp(fedmim.Sharp(INNER)), r"^sharp: FedAvg \+ sharp is already sharpness-aware"),
        (lambda: fedmim.Sharp(fedmim.FedSMOO()), r"^sharp: FedSMOO is already sharpness-aware"),
        (lambda: fedmim.Sharp(fedmim.Leap(fedmim.MoFedSAM())), r"^sharp: MoFedSAM \+ leap is already sharpness-aware"),
    ],
)
def test_a_composition_that_makes_no_sense_is_rejected_with_the_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_server_rate_is_rejected_around_a_method_that_takes_none():
    settings = fedmim.Settings(server_lr=0.5)
    with pytest.raises(ValueError, match=r"^server_lr: must be 1 for FedDyn \+ leap"):
        fedmim.rounds(fedmim.Leap(fedmim.FedDyn()), classification(), settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_frozen_equal_to_its_like_and_named_by_its_repr(name):
    method = METHODS[name]()
    assert method == METHODS[name]()
    assert hash(method) == hash(METHODS[name]())
    assert repr(method).startswith(METHODS[name].__name__)
    with pytest.raises(FrozenInstanceError):
        method.anything = 1


@pytest.mark.parametrize("name", METHODS)
def test_each_docstring_has_the_update_and_a_reference(name):
    text = METHODS[name].__doc__
    assert "client   " in text
    assert "server   " in text
    assert " et al. 20" in text
