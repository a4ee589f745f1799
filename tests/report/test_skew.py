"""Data of the clients: counted in the run folder, ordered for the picture."""

import numpy as np
import pytest
import torch
from run_folders import comparison

from fedmim import Task
from fedmim.errors import UserError
from fedmim.experiments.client_labels import CLIENT_LABELS, read_client_labels, write_client_labels
from fedmim.report.page import page
from fedmim.report.skew import CLIENTS, arrange, skew_of
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results


def test_the_counts_of_a_run_are_those_of_its_clients(tmp_path):
    task = Task.named("digits", split="dirichlet:0.1", clients=20, model="logistic")
    write_client_labels(task, tmp_path)
    counts = read_client_labels(tmp_path)
    expected = [np.bincount(y.numpy(), minlength=10).tolist() for _, y in task.clients]
    assert counts.tolist() == expected
    assert counts.sum() == 1438


def test_natural_clients_of_an_own_task_are_counted_too(tmp_path):
    users = {"ada": (torch.zeros(3, 2), torch.tensor([0, 2, 2])), "bob": (torch.zeros(1, 2), torch.tensor([1]))}
    write_client_labels(Task.from_users(torch.nn.Linear(2, 3), users, users["ada"]), tmp_path)
    assert read_client_labels(tmp_path).tolist() == [[1, 0, 2], [0, 1, 0]]


@pytest.mark.parametrize(
    "y",
    [
        torch.zeros(4, 1),
        torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]]),  # several labels per sample
        torch.tensor([0, -100, 1, 1]),  # -100 is PyTorch's "ignore"
        torch.tensor([0, 1, 2, 10**9]),  # counts, not classes
    ],
)
def test_a_task_without_classes_has_no_picture(y, tmp_path):
    x = torch.zeros(4, 2)
    write_client_labels(Task.from_dataset(torch.nn.Linear(2, 1), (x, y), (x, y), clients=2), tmp_path)
    write_client_labels(Task(torch.nn.Linear(2, 1), [(x, y)], (x, y)), tmp_path)
    assert not (tmp_path / CLIENT_LABELS).exists()
    assert read_client_labels(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"classes": 2, "clients": [3]}',
        '{"classes": 2, "clients": [{"2": 1}]}',
        '{"classes": 2, "clients": [{"1": -1}]}',
        '{"classes": 2, "clients": [{"1": 1.5}]}',
        '{"classes": 1000000000000, "clients": [{"1": 1}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_named(text, tmp_path):
    (tmp_path / CLIENT_LABELS).write_text(text)
    with pytest.raises(UserError, match=r"clients\.json: is damaged \(.*\); remove it") as caught:
        read_client_labels(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_costs_its_own_picture_alone(tmp_path):
    comparison(tmp_path, [("fedavg", None, {}), ("fedmim", None, {})], rounds=2)
    (group,) = group_runs(load_results(find_runs([tmp_path], pytest.fail)))
    (tmp_path / "fedavg-seed0" / CLIENT_LABELS).write_text("{}")
    warnings = []
    assert skew_of(group, warnings.append).total == 3  # that of the next run
    assert len(warnings) == 1
    text = page([group])
    assert "fedavg-seed0/clients.json: is damaged" in text
    assert "Data of the clients" in text


def test_clients_are_ordered_by_their_largest_class_the_purest_first():
    skew = arrange(np.array([[0, 4], [3, 1], [4, 0], [1, 1]]), seed=7)
    assert skew.clients == [2, 1, 3, 0]
    assert skew.shares[1] == [0.75, 0.25]
    assert skew.sizes == [4, 4, 2, 4]
    # 1 + 2 + 1 + 2 classes over four clients; the largest shares are 1, 0.75, 1 and 0.5
    assert skew.sentence == (
        "Each client has 2 to 4 samples, from 1.5 of the 2 classes on average. "
        "In the median client, 88% of the samples belong to one class."
    )


def test_many_clients_are_thinned_evenly_and_their_number_is_kept():
    skew = arrange(np.array([[1 + i % 3, 1] for i in range(1000)]), seed=0)
    assert len(skew.clients) == CLIENTS
    assert skew.total == 1000
