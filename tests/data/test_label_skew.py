"""dirichlet:U has the label skew that it claims; pathological:C gives each client at most C classes."""

import numpy as np
import pytest
import torch

from fedmim.data import label_skew, partition

CLASSES, CLIENTS, QUOTA = 10, 100, 100
LABELS = torch.arange(CLIENTS * QUOTA) % CLASSES


def label_counts(concentration, seed, labels=LABELS, clients=CLIENTS):
    parts = partition(labels, f"dirichlet:{concentration}", clients, seed)
    return np.stack([labels[part].bincount(minlength=CLASSES).numpy() for part in parts])


def largest_share(counts):
    return (counts.max(1) / counts.sum(1)).mean()


def entropy(counts):
    share = counts / counts.sum(1, keepdims=True)
    return -(share * np.log(np.where(share > 0, share, 1))).sum(1).mean()


def one_by_one(concentration, seed):
    """The definition, a sample at a time: each label from the prior over the classes that still have samples."""
    rng = np.random.default_rng(seed)
    left = np.full(CLASSES, CLIENTS * QUOTA // CLASSES)
    counts = np.zeros((CLIENTS, CLASSES))
    for client in range(CLIENTS):
        prior = rng.dirichlet(np.full(CLASSES, concentration))
        for _ in range(QUOTA):
            remaining = prior * (left > 0)
            total = remaining.sum()
            chances = remaining / total if total > 1e-200 else (left > 0) / (left > 0).sum()
            label = rng.choice(CLASSES, p=chances)
            counts[client, label] += 1
            left[label] -= 1
    return counts


@pytest.mark.parametrize("concentration", [0.1, 0.6])
def test_label_skew_is_that_of_drawing_one_by_one(concentration):
    """Largest share and entropy, mean over clients and seeds, against the definition written out."""
    found = [label_counts(concentration, seed) for seed in range(40)]
    expected = [one_by_one(concentration, seed) for seed in range(4)]
    for measure in (largest_share, entropy):
        ours, theirs = [measure(counts) for counts in found], [measure(counts) for counts in expected]
        # The deviation of one partition's mean is estimated from 40 of them; the naive side has 4.
        tolerance = 4 * np.std(ours) * (1 / 40 + 1 / 4) ** 0.5
        assert abs(np.mean(ours) - np.mean(theirs)) < tolerance


@pytest.mark.parametrize("concentration", [0.1, 1.0, 10.0])
def test_two_labels_of_a_client_agree_as_often_as_the_dirichlet_prior_says(concentration):
    """In closed form: a prior from Dir(U) over K classes repeats a label with probability (U + 1) / (K U + 1)."""
    clients = 10_000
    labels = torch.arange(2 * clients) % CLASSES
    counts = label_counts(concentration, 0, labels, clients)
    agree = (counts.max(1) == 2).mean()
    expected = (concentration + 1) / (CLASSES * concentration + 1)
    # Binomial deviation 0.005 at most. A class runs out only towards the end: of 2,000 samples, its demand deviates
    # by less than 60, so fewer than 3 % of the clients choose from what is left.
    assert abs(agree - expected) < 4 * 0.005 + 0.03 * (1 - expected)


def test_a_large_concentration_is_nearly_iid():
    largest = label_counts(1e6, 0).max(1) / QUOTA
    iid = np.random.default_rng(0).multinomial(QUOTA, np.full(CLASSES, 1 / CLASSES), size=100_000).max(1) / QUOTA
    # The median, because the last one or two clients have to take what is left, however it is mixed. Deviation of
    # the largest share 0.02, of the median of 100 clients 0.0025.
    assert abs(np.median(largest) - np.median(iid)) <= 0.01


def test_a_tiny_concentration_gives_nearly_every_client_one_class():
    for seed in range(5):
        counts = label_counts(1e-6, seed)
        # Only a client that empties a class goes on to another one, and the last class to go is not followed by any.
        assert (counts.max(1) == QUOTA).sum() >= CLIENTS - (CLASSES - 1)


def test_skew_grows_as_the_concentration_falls():
    shares = [largest_share(label_counts(concentration, 0)) for concentration in (10, 1, 0.3, 0.1, 0.01)]
    assert shares == sorted(shares)


def test_clients_with_late_ids_are_no_more_skewed_than_early_ones():
    shares = np.stack([label_counts(0.3, seed).max(1) / QUOTA for seed in range(40)])  # (seeds, clients)
    early, late = shares[:, :50].mean(1), shares[:, 50:].mean(1)
    difference = early - late
    assert abs(difference.mean()) < 4 * difference.std() / 40**0.5


def test_classes_that_are_absent_or_numbered_with_gaps_do_no_harm():
    labels = torch.tensor([3, 3, 900, 900, 900, 41])
    parts = partition(labels, "dirichlet:0.5", 3, seed=0)
    assert torch.cat(parts).sort().values.tolist() == list(range(6))


def split(labels, classes_a_client, clients, seed=0):
    parts = partition(labels, f"pathological:{classes_a_client}", clients, seed)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(len(labels)))
    sizes = np.array([len(part) for part in parts])
    classes = np.array([len(labels[part].unique()) for part in parts])
    return parts, sizes, classes


def test_where_shards_divide_it_is_the_split_of_mcmahan():
    labels = torch.arange(6000) % 10
    parts, sizes, classes = split(labels, 2, 100)
    assert (sizes == 60).all()
    assert (classes == 2).all()
    for part in parts:
        assert sorted(labels[part].bincount().tolist())[-2:] == [30, 30]


def test_different_clients_have_different_pairs_of_classes():
    labels = torch.arange(6000) % 10
    parts, _, _ = split(labels, 2, 100)
    pairs = {tuple(labels[part].unique().tolist()) for part in parts}
    # 100 draws among 45 pairs leave about 40 different ones; blocks of neighbours would leave 5.
    assert len(pairs) > 30


def shard_sizes(sizes, clients, per_client):
    """The definition, a cut at a time: the class with the largest shards gets one more, up to as many as clients."""
    shards = [1] * len(sizes)
    for _ in range(clients * per_client - len(sizes)):
        open_classes = [label for label in range(len(sizes)) if shards[label] < clients]
        shards[max(open_classes, key=lambda label: (sizes[label] / shards[label], -shards[label]))] += 1
    return [len(part) for size, count in zip(sizes, shards, strict=True) for part in np.array_split(range(size), count)]


def labels_of_sizes(sizes, rng):
    return torch.from_numpy(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))


def test_in_random_cases_sizes_differ_by_no_more_than_the_shards_do_and_nobody_is_left_empty():
    rng = np.random.default_rng(0)
    tried = 0
    for seed in range(300):
        sizes = rng.integers(1, rng.choice([3, 10, 60]), int(rng.integers(1, 13)))
        clients = int(rng.integers(1, min(sizes.sum(), 3 * len(sizes)) + 1))
        per_client = int(rng.integers(1, len(sizes) + 1))
        if clients * per_client < len(sizes):
            continue
        tried += 1
        _, found, classes = split(labels_of_sizes(sizes, rng), per_client, clients, seed)
        assert classes.max() <= per_client
        assert found.min() >= 1
        shards = shard_sizes(sizes, clients, per_client)
        assert found.max() - found.min() <= max(shards) - min(shards)
    assert tried > 150


def test_equal_classes_give_equal_clients_where_the_shards_can_be_shared_out_evenly():
    rng = np.random.default_rng(0)
    tried = 0
    for seed in range(300):
        classes, size = int(rng.integers(1, 13)), int(rng.integers(1, 60))
        clients, per_client = int(rng.integers(1, min(classes * size, 40) + 1)), int(rng.integers(1, classes + 1))
        if clients * per_client % classes == 0:
            tried += 1
            _, found, _ = split(labels_of_sizes([size] * classes, rng), per_client, clients, seed)
            assert found.max() - found.min() <= 1
    assert tried > 70


def test_unequal_classes_may_give_unequal_clients():
    labels = torch.repeat_interleave(torch.arange(2), torch.tensor([10, 90]))
    _, sizes, _ = split(labels, 1, 2)
    assert sorted(sizes) == [10, 90]


def test_one_class_per_client_gives_up_equal_sizes_but_not_the_class():
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([10, 20, 33]))
    _, sizes, classes = split(labels, 1, 6)
    assert (classes == 1).all()
    # 6 clients on 10 + 20 + 33: one, two and three of them, as equal as whole classes allow.
    assert sorted(sizes) == [10, 10, 10, 11, 11, 11]


@pytest.mark.parametrize(("per_client", "clients"), [(2, 100), (5, 100), (3, 400), (4, 300)])
def test_every_client_has_exactly_c_classes_where_it_has_enough_samples(per_client, clients):
    rng = np.random.default_rng(1)
    labels = torch.from_numpy(rng.integers(0, 10, 1437))
    _, _, classes = split(labels, per_client, clients)
    assert (classes == per_client).all()


def dealt_by_passes_over_all_clients(sizes, clients, per_client, rng):
    """The same deal, with a pass over all clients for every client that would get a class twice."""
    label, size = label_skew._shards(sizes, clients, per_client)
    turns = np.lexsort((rng.random(len(size)), -size)).reshape(per_client, clients)
    turns[1::2] = turns[1::2, ::-1]
    counts = np.zeros((clients, len(sizes)), dtype=np.int64)
    swaps = 0
    for shards in turns:
        for client in [each for each in range(clients) if counts[each, label[shards[each]]]]:
            mine, others = label[shards[client]], label[shards]
            partners = [j for j in range(clients) if not counts[client, others[j]] and not counts[j, mine]]
            if partners:
                other = rng.choice(partners)
                shards[[client, other]] = shards[[other, client]]
                swaps += 1
        counts[np.arange(clients), label[shards]] += size[shards]
    return rng.permutation(counts), swaps


def test_shards_are_dealt_as_with_a_pass_over_all_clients_for_every_swap():
    rng = np.random.default_rng(0)
    total = 0
    for seed in range(60):
        sizes = rng.integers(1, rng.choice([10, 60, 300]), int(rng.integers(2, 13)))
        clients, per_client = int(rng.integers(12, 90)), int(rng.integers(1, len(sizes) + 1))
        found = label_skew.pathological_counts(sizes, clients, per_client, np.random.default_rng(seed))
        expected, swaps = dealt_by_passes_over_all_clients(sizes, clients, per_client, np.random.default_rng(seed))
        assert np.array_equal(found, expected)
        total += swaps
    assert total > 500
