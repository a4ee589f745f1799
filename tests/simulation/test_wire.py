"""What crosses the wire is known before a run: by name and size, and a method that breaks the contract is told so."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from problems import busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.wire import Wire

PARAMS = torch.ones(5)


def test_the_vectors_of_a_method_by_name_and_size():
    assert Wire.of(fedmim.FedMIM(), PARAMS) == Wire(
        broadcast={"params": 5, "inertia": 5, "look_ahead": 5},
        down={"params": 5, "inertia": 5},
        upload={"params": 5},
        slots={},
    )
    assert Wire.of(fedmim.FedSMOO(), PARAMS).slots == {"dual": 5, "mu": 5}


class Small(fedmim.FedAvg):
    def finish(self, w, local):
        return {"params": w, "norm": w.norm(dim=-1, keepdim=True)}, {}


class LongSlot(fedmim.FedAvg):
    client_slots: ClassVar = ("memory",)

    def finish(self, w, local):
        return {"params": w}, {"memory": torch.cat([w, w])}


class Undeclared(fedmim.FedAvg):
    def finish(self, w, local):
        return {"params": w}, {"memory": w}


class NoModel(fedmim.FedAvg):
    def finish(self, w, local):
        return {"model": w}, {}


def test_an_upload_may_have_any_size():
    assert Wire.of(Small(), PARAMS).upload == {"params": 5, "norm": 1}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (LongSlot(), r"finish must return the slots memory \(5\), got memory \(10\)"),
        (Undeclared(), r"finish must return the slots none, got memory \(5\)"),
        (NoModel(), r'finish must return "params" of size 5, got None'),
    ],
)
def test_a_method_that_breaks_the_contract_is_told_so(method, message):
    with pytest.raises(UserError, match=message):
        Wire.of(method, PARAMS)


class LateSlot(fedmim.Scaffold):
    """Whose slot has the wrong length."""

    def finish(self, w, local):
        upload, slots = super().finish(w, local)
        return upload, {name: vector[..., :-1] for name, vector in slots.items()}


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes", "auto"])
def test_every_engine_tells_it_before_the_first_round(engine):
    with pytest.raises(UserError, match=r"finish must return the slots control \(43\), got control \(42\)"):
        fedmim.rounds(LateSlot(), classification(), *busy(engine=engine))
