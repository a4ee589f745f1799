"""Each method, run by the simulator, walks the path of its naive transcription: round by round, to rounding."""

from __future__ import annotations

from functools import partial

import naive_methods as naive
import pytest
import torch
from problems import SIZES, busy, classification

import fedmim

# A method, its transcription, and the server rate that is its own where the settings name none.
METHODS = {
    "FedAvg": (fedmim.FedAvg(), naive.fedavg),
    "FedAdam": (fedmim.FedAdam(), partial(naive.fedadam, b1=0.9, b2=0.99, tau=1e-2)),
    "FedAdam, other moments": (
        fedmim.FedAdam(beta1=0.5, beta2=0.8, tau=1e-3),
        partial(naive.fedadam, b1=0.5, b2=0.8, tau=1e-3),
    ),
    "SCAFFOLD": (fedmim.Scaffold(), naive.scaffold),
    "FedCM": (fedmim.FedCM(), partial(naive.fedcm, a=0.1)),
    "FedCM, mostly own": (fedmim.FedCM(alpha=0.7), partial(naive.fedcm, a=0.7)),
    "FedDyn": (fedmim.FedDyn(), partial(naive.feddyn, a=0.1)),
    "FedDyn, strong": (fedmim.FedDyn(alpha=0.8), partial(naive.feddyn, a=0.8)),
    "FedSAM": (fedmim.FedSAM(), partial(naive.fedsam, radius=0.1)),
    "FedProx": (fedmim.FedProx(), partial(naive.fedprox, mu=0.01)),
    "FedProx, strong": (fedmim.FedProx(mu=0.9), partial(naive.fedprox, mu=0.9)),
    "FedAvgM": (fedmim.FedAvgM(), partial(naive.fedavgm, momentum=0.9)),
    "FedMIM": (fedmim.FedMIM(), partial(naive.fedmim_algorithm_1, alpha=(0.6, 0.3), beta=(0.9, 0.1))),
    "GHBM": (fedmim.GHBM(tau=3), partial(naive.ghbm, b=0.9, tau=3)),
    "FedACG": (fedmim.FedACG(mu=0.3), partial(naive.fedacg, momentum=0.85, mu=0.3)),
    "MoFedSAM": (fedmim.MoFedSAM(), partial(naive.mofedsam, a=0.1, radius=0.1)),
    "FedGAMMA": (fedmim.FedGamma(), partial(naive.fedgamma, radius=0.1)),
    "FedSpeed": (fedmim.FedSpeed(prox=0.5, rho=0.3, alpha=0.7), partial(naive.fedspeed, lam=2.0, rho=0.3, alpha=0.7)),
    "FedSMOO": (fedmim.FedSMOO(prox=0.5, radius=0.2), partial(naive.fedsmoo, beta=2.0, radius=0.2)),
    "FedLESAM": (fedmim.FedLESAM(), partial(naive.fedlesam, radius=0.1)),
    "FedInit": (fedmim.FedInit(beta=0.4), partial(naive.fedinit, beta=0.4)),
    "SCAFFOLD-M": (fedmim.ScaffoldM(beta=0.3), partial(naive.scaffold_m, beta=0.3)),
    "FedNova": (fedmim.FedNova(), naive.fednova),
    "FedExP": (fedmim.FedExP(), partial(naive.fedexp, epsilon=1e-3)),
    "FedYogi": (fedmim.FedYogi(), partial(naive.fedyogi, b1=0.9, b2=0.99, tau=1e-2)),
    "FedAdagrad": (fedmim.FedAdagrad(beta1=0.5), partial(naive.fedadagrad, b1=0.5, tau=1e-2)),
    "MimeLite": (fedmim.MimeLite(), partial(naive.mimelite, b=0.9)),
    "leap": (fedmim.Leap(fedmim.FedAvg()), partial(naive.leap, alpha=(0.6, 0.3))),
    "leap, ahead": (fedmim.Leap(fedmim.FedAvg(), (0.3,), 2.0), partial(naive.leap, alpha=(0.3,), ahead=2.0)),
    "leap around FedProx": (
        fedmim.Leap(fedmim.FedProx(0.5), (0.2, 0.1, 0.3)),
        partial(naive.leap, alpha=(0.2, 0.1, 0.3), mu=0.5),
    ),
    "leap around FedDyn": (
        fedmim.Leap(fedmim.FedDyn(0.3), (0.3, 0.2), 0.5),
        partial(naive.leap_around_feddyn, alpha=(0.3, 0.2), a=0.3, ahead=0.5),
    ),
    "sharp": (fedmim.Sharp(fedmim.FedAvg(), 0.3), partial(naive.fedsam, radius=0.3)),
}
ANY_SERVER_LR = [name for name, (algorithm, _) in METHODS.items() if algorithm.any_server_lr]

LENGTHS = {  # alpha and beta for J = 0 .. 3, also of unequal lengths and other signs
    "J=0": ((), ()),
    "J=1": ((0.6,), (0.9,)),
    "J=2": ((0.6, 0.3), (0.9, 0.1)),
    "J=3": ((0.3, 0.2, 0.1), (0.5, 0.3, 0.2)),
    "no inertia": ((), (0.5, 0.4)),
    "no look-ahead": ((0.5, 0.3), ()),
    "shorter alpha": ((0.4,), (0.7, 0.2, 0.1)),
    "shorter beta": ((0.2, 0.3, 0.4), (0.8,)),
    "negative beta": ((0.5, 0.2), (-0.6, 0.2)),
    "zeros between": ((0.0, 0.5), (0.0, 0.0, 0.9)),
}


def assert_same_path(algorithm, transcription, task, settings, execution, tolerance=1e-10):
    """The models of all rounds agree, and so does the consistency of the local models; returns the naive side."""
    fed = naive.Federation(task, settings)
    expected = transcription(fed)
    run = fedmim.rounds(algorithm, task, settings, execution)
    for t, record in enumerate(run):
        apart = (run.params - expected[t + 1]).abs().max().item()
        assert apart <= tolerance * (1 + expected[t + 1].abs().max().item()), f"round {t + 1}: {apart}"
        models = fed.local_models[t]
        mean = fed.mean(models)
        consistency = fed.mean({i: (w - mean).square().sum() for i, w in models.items()})
        assert record.consistency == pytest.approx(consistency.item(), rel=1e-8)
        assert record.clients == tuple(models)
    assert record.round == settings.rounds
    return fed


# By the serial engine; that the vectorised one agrees with it for every method is a test of the contract.
@pytest.mark.parametrize(("name", "engine"), [*((name, "serial") for name in METHODS), ("FedMIM", "vectorised")])
def test_a_method_equals_its_transcription(name, engine):
    fed = assert_same_path(*METHODS[name], classification(), *busy(engine=engine))
    assert fed.clipped == {True, False}  # the setting exercises both


@pytest.mark.parametrize("name", METHODS)
def test_a_method_equals_its_transcription_weighing_clients_by_their_samples(name):
    assert_same_path(*METHODS[name], classification(), *busy(weighting="samples", engine="serial"))


@pytest.mark.parametrize("name", ANY_SERVER_LR)
def test_a_method_equals_its_transcription_at_another_server_rate(name):
    algorithm, transcription = METHODS[name]
    protocol = busy(server_lr=0.7, engine="serial")
    assert_same_path(algorithm, partial(transcription, server_lr=0.7), classification(), *protocol)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_equals_its_transcription_with_a_common_number_of_steps(name):
    protocol = busy(local_steps=3, participation=1.0, rounds=4, engine="serial")
    assert_same_path(*METHODS[name], classification(), *protocol)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_equals_its_transcription_on_full_batches_without_decay_and_clipping(name):
    protocol = busy(batch_size=None, weight_decay=0.0, clip_norm=None, local_epochs=3, engine="serial")
    assert_same_path(*METHODS[name], classification(), *protocol)


@pytest.mark.parametrize(
    ("lengths", "engine"),
    [*((lengths, "serial") for lengths in LENGTHS), ("J=3", "vectorised"), ("shorter alpha", "vectorised")],
)
def test_fedmim_equals_algorithm_1_for_any_alpha_and_beta(lengths, engine):
    alpha, beta = LENGTHS[lengths]
    transcription = partial(naive.fedmim_algorithm_1, alpha=alpha, beta=beta)
    fed = assert_same_path(fedmim.FedMIM(alpha, beta), transcription, classification(), *busy(rounds=7, engine=engine))
    steps = {len(fed.batches(t, i)) for t, models in enumerate(fed.local_models) for i in models}
    assert len(steps) > 2  # clients of several lengths took part


def test_an_epoch_of_the_transcriptions_has_every_sample_once():
    fed = naive.Federation(classification(), busy()[0])
    for i, n in enumerate(SIZES):
        batches = fed.batches(0, i)
        assert len(batches) == 2 * -(-n // 4)  # E * ceil(n / B)
        epoch = torch.cat([x for x, _ in batches[: len(batches) // 2]])
        assert torch.equal(epoch.sort(dim=0).values, fed.task.clients[i][0].sort(dim=0).values)
