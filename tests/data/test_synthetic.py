"""synthetic(alpha, beta): its definition client by client, its sizes, and the names that are accepted."""

import numpy as np
import pytest
import torch

from fedmim.data import catalogue, load, synthetic
from fedmim.data.keyed_generator import keyed_generator
from fedmim.errors import UserError
from fedmim.experiments.config import Config, defaults, target_of


def clients_of(data):
    """The samples of each client, training and test together."""
    both = zip(data.natural, data.client_tests, strict=True)
    return [[torch.cat([data.train[k][own], data.test[k][tested]]) for k in range(2)] for own, tested in both]


def test_each_client_follows_the_definition_sample_by_sample():
    """The same draws, put together with loops: W and b around u, v around B, noise of variance j^-1.2."""
    alpha, beta = 0.7, 2.0
    found = clients_of(load("synthetic:0.7,2,4"))
    for client, (x, y) in enumerate(found):
        rng = keyed_generator("synthetic", client)
        u, b_mean = alpha * rng.standard_normal(), beta * rng.standard_normal()
        v = [b_mean + draw for draw in rng.standard_normal(60)]
        weight = u + rng.standard_normal((60, 10))
        bias = u + rng.standard_normal(10)
        for sample, label in zip(x.double().numpy(), y.tolist(), strict=True):
            point = [v[j] + np.sqrt((j + 1.0) ** -1.2) * draw for j, draw in enumerate(rng.standard_normal(60))]
            np.testing.assert_allclose(sample, point, rtol=1e-5, atol=1e-6)
            scores = [sum(point[j] * weight[j, k] for j in range(60)) + bias[k] for k in range(10)]
            assert label == int(np.argmax(scores))


def test_the_moments_are_those_of_the_definition():
    """Over 400 clients: the variance within a client is j^-1.2, of B_k beta^2, of v_k around B_k 1."""
    x = [own.double().numpy() for own, _ in clients_of(load("synthetic:0,3,400"))]
    within = np.average([own.var(axis=0, ddof=1) for own in x], axis=0, weights=[len(own) - 1 for own in x])
    np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.05)
    centres = np.stack([own.mean(axis=0) for own in x])  # v_k, up to the noise of a mean
    assert np.var(centres - centres.mean(axis=1, keepdims=True), ddof=1) * 60 / 59 == pytest.approx(1, rel=0.05)
    assert np.var(centres.mean(axis=1), ddof=1) == pytest.approx(9 + 1 / 60, rel=4 * np.sqrt(2 / 399))


def test_sizes_are_lognormal_and_a_fifth_is_test_data():
    data = load("synthetic:1,1")
    sizes = np.array([synthetic._size(client) for client in range(2000)])
    assert [len(own) for own in data.natural] == [int(0.8 * size) for size in sizes[:30]]
    assert [len(own) for own in data.client_tests] == [size - int(0.8 * size) for size in sizes[:30]]
    logs = np.log(sizes - 50 + 0.5)  # rounded down: the middle of the interval
    assert np.median(logs) == pytest.approx(4, abs=4 * 2 * np.sqrt(np.pi / 2 / 2000))
    assert np.subtract(*np.quantile(logs, [0.75, 0.25])) == pytest.approx(2 * 2 * 0.6745, rel=0.1)
    assert sizes.min() >= 50


def test_alpha_moves_all_scores_of_a_client_alike_and_changes_no_label():
    none, large = load("synthetic:0,1"), load("synthetic:5,1")
    assert torch.equal(none.train[0], large.train[0])
    assert torch.equal(none.train[1], large.train[1])
    assert not torch.equal(none.train[0], load("synthetic:0,0.5").train[0])


def test_iid_clients_share_their_model_and_distribution():
    data = load("synthetic:iid")
    x, y = data.train[0].double(), data.train[1]
    rng = keyed_generator("synthetic", "iid")
    weight, bias = torch.from_numpy(rng.standard_normal((60, 10))), torch.from_numpy(rng.standard_normal(10))
    assert ((x @ weight + bias).argmax(1) == y).double().mean() > 0.999  # x is rounded to float32
    largest = max(data.natural, key=len)
    # The mean of 2,303 samples, in units of its standard deviation: 60 standard normal variables.
    scaled = x[largest].mean(0) * len(largest) ** 0.5 * torch.arange(1, 61) ** 0.6
    assert scaled.abs().max() < 4.5


def test_more_clients_begin_with_the_same_ones_and_loading_again_gives_the_same():
    small, large, again = clients_of(load("synthetic:1,1")), clients_of(load("synthetic:1,1,40")), load("synthetic:1,1")
    assert (len(small), len(large)) == (30, 40)
    for few, many in zip(small, large, strict=False):
        assert torch.equal(few[0], many[0])
        assert torch.equal(few[1], many[1])
    found = catalogue.find_descriptor("synthetic:1,1")
    assert (found.train_size, found.test_size) == (len(again.train[1]), len(again.test[1]))


def test_the_name_sets_the_number_of_clients_and_the_title():
    for name, clients, title in (
        ("synthetic:1,1", 30, "Synthetic(1, 1)"),
        ("synthetic:0.5,0.5,100", 100, "Synthetic(0.5, 0.5, 100)"),
        ("synthetic:iid", 30, "Synthetic iid"),
        ("synthetic:iid,7", 7, "Synthetic iid, 7"),
    ):
        config = Config.of(defaults(name), name)
        assert (config.problem.clients, config.problem.split) == (clients, "natural")
        assert catalogue.find_descriptor(name).title == title
        assert len(config.task().clients) == clients
        assert target_of(name) == (0.7 if name == "synthetic:1,1" else None)


@pytest.mark.parametrize(
    "name",
    ["", ":", ":1", ":1,1,1,1", ":1,-1", ":nan,1", ":1,1e9", ":1,1,0", ":1,1,x", ":iid,1,1", ":1,1,9999999"],
)
def test_other_names_are_rejected_with_an_example(name):
    with pytest.raises(UserError, match=f"data: synthetic{name} must be synthetic:A,B .*synthetic:1,1"):
        load(f"synthetic{name}")
