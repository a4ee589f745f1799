"""Schedules of the learning rate: their rates by hand, in every engine, and which settings they fix."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi, sqrt

import pytest
import torch
from problems import busy, classification

import fedmim
from fedmim.errors import UserError
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder


def rates(rounds=4, **settings):
    chosen = fedmim.Settings(rounds=rounds, lr=0.8, **settings)
    return [chosen.lr_at(t) for t in range(rounds)]


def test_the_rates_of_each_schedule_by_hand():
    assert rates(lr_decay=0.5) == [0.8, 0.4, 0.2, 0.1]
    assert rates(lr_schedule="constant") == [0.8] * 4
    assert rates(lr_schedule="step:2,0.5") == [0.8, 0.8, 0.4, 0.4]
    # cos(0), cos(45°), cos(90°), cos(135°)
    assert rates(lr_schedule="cosine") == pytest.approx([0.8, 0.4 + 0.2 * sqrt(2), 0.4, 0.4 - 0.2 * sqrt(2)])


def test_lr_decay_with_another_schedule_is_an_error_that_says_what_to_do():
    for schedule in ("constant", "cosine", "step:5,0.1"):
        with pytest.raises(UserError, match=r"^lr_decay: has no effect with lr_schedule .*remove lr_decay, or set"):
            fedmim.Settings(lr_schedule=schedule, lr_decay=0.9)
        assert fedmim.Settings(lr_schedule=schedule, lr_decay=1.0).lr_at(0) == 0.1  # the default of some data sets


@pytest.mark.parametrize("engine", ["serial", "processes", "vectorised"])
def test_two_names_of_the_same_rates_give_the_same_bits(engine):
    def final(**changes):
        return fedmim.simulate(fedmim.Scaffold(), classification(), *busy(engine=engine, workers=2, **changes)).params

    assert torch.equal(final(lr_decay=0.9), final(lr_schedule="step:1,0.9", lr_decay=1.0))
    assert torch.equal(final(lr_decay=1.0), final(lr_schedule="constant", lr_decay=1.0))


def test_the_records_of_a_cosine_run_have_its_rates_and_personal_models_those_of_the_last_round():
    settings, execution = busy(lr_schedule="cosine", lr_decay=1.0, rounds=3, per_client="personal")
    result = fedmim.simulate(fedmim.Scaffold(), classification(), settings, execution)
    assert [record.lr for record in result.history] == [0.3 * (1 + cos(pi * t / 3)) / 2 for t in range(3)]
    assert settings.lr_at(3) == settings.lr_at(2) > 0
    assert result.history[-1].personal_mean is not None


def test_only_a_cosine_fixes_the_rounds_of_a_run(tmp_path):
    assert "rounds" not in fedmim.Settings(lr_schedule="step:5,0.1").fixed()
    settings, task = busy(lr_schedule="cosine", lr_decay=1.0)[0], classification()
    run = fedmim.rounds(fedmim.FedAvg(), task, settings, folder=tmp_path)
    next(run)
    run.save()
    with pytest.raises(UserError, match="the run there has a different rounds"):
        fedmim.rounds(fedmim.FedAvg(), task, replace(settings, rounds=9), folder=tmp_path, resume=True)
    assert fedmim.rounds(fedmim.FedAvg(), task, settings, folder=tmp_path, resume=True).state.round == 1


def test_a_resume_with_other_rounds_is_rejected_with_the_reason(tmp_path):
    def run_of(**settings):
        return Run.make("fedavg", defaults("digits") | {"rounds": 6, "lr_schedule": "cosine"} | settings)

    RunFolder.create(tmp_path / "run", run_of())
    with pytest.raises(UserError, match=r"rounds \(lr_schedule cosine depends on it\) cannot change"):
        RunFolder.reopen(tmp_path / "run", run_of(rounds=9))
    with pytest.raises(UserError, match=r"run: lr_schedule cannot change"):
        RunFolder.reopen(tmp_path / "run", run_of(lr_schedule="constant"))


def test_the_identity_of_a_run_without_the_new_settings_has_none_of_them():
    identity = Run.make("fedavg", defaults("mnist1d") | {"local_epochs": 7.0}).identity()
    assert '"local_epochs": 7,' in identity
    assert not any(name in identity for name in ("lr_schedule", "until", "patience"))
