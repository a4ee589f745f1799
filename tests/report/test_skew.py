"""Who holds what: counted in the run folder, ordered for the picture."""

import numpy as np
import pytest
import torch

from fedmim import Task
from fedmim.experiments.client_labels import CLIENT_LABELS, read_client_labels, write_client_labels
from fedmim.report.skew import CLIENTS, arrange


def test_the_counts_of_a_run_are_those_of_its_clients(tmp_path):
    task = Task.named("digits", split="dirichlet:0.1", clients=20, model="logistic")
    write_client_labels(task, tmp_path)
    counts = read_client_labels(tmp_path)
    expected = [np.bincount(y.numpy(), minlength=10).tolist() for _, y in task.clients]
    assert counts == expected
    assert sum(map(sum, counts)) == 1438


def test_a_task_without_classes_has_no_picture(tmp_path):
    x, y = torch.zeros(4, 2), torch.zeros(4, 1)
    write_client_labels(Task.from_dataset(torch.nn.Linear(2, 1), (x, y), (x, y), clients=2), tmp_path)
    write_client_labels(Task(torch.nn.Linear(2, 1), [(x, y)], (x, y)), tmp_path)
    assert not (tmp_path / CLIENT_LABELS).exists()
    assert read_client_labels(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"classes": 2, "clients": [3]}'])
def test_a_damaged_file_is_a_picture_less_and_no_error(text, tmp_path):
    (tmp_path / CLIENT_LABELS).write_text(text)
    assert read_client_labels(tmp_path) is None


def test_clients_are_ordered_by_their_largest_class_the_purest_first():
    skew = arrange([[0, 4], [3, 1], [4, 0], [1, 1]], seed=7)
    assert skew.clients == [2, 1, 3, 0]
    assert skew.shares[1] == [0.75, 0.25]
    assert skew.sizes == [4, 4, 2, 4]
    # 1 + 2 + 1 + 2 classes over four clients; the largest shares are 1, 0.75, 1 and 0.5
    assert skew.sentence == (
        "A client has 2 to 4 samples and sees 1.5 of the 2 classes on average; "
        "in the median client 88% of the samples are of one class."
    )


def test_many_clients_are_thinned_evenly_and_their_number_is_kept():
    skew = arrange([[1 + i % 3, 1] for i in range(1000)], seed=0)
    assert len(skew.clients) == CLIENTS
    assert skew.total == 1000
