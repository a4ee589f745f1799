"""Hyper-parameters are checked when a method is made; the message begins with the field's name."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

import fedmim
from fedmim.algorithms import METHODS, PAPER

NAN, INF = math.nan, math.inf
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
        "fedadam": 0.1
    }


def test_the_nine_methods_and_the_seven_of_the_paper_are_listed():
    paper = {"fedavg", "fedadam", "scaffold", "fedcm", "feddyn", "fedsam", "fedmim"}
    assert set(PAPER) == paper
    assert set(METHODS) == paper | {"fedprox", "fedavgm"}


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
