"""Own tensors from a safetensors file, natural clients included."""

import pytest
import torch
from safetensors.torch import save_file

from fedmim.data import load
from fedmim.errors import UserError

GENERATOR = torch.Generator().manual_seed(0)
TENSORS = {
    "x_train": torch.randn(6, 4, generator=GENERATOR),
    "y_train": torch.tensor([0, 1, 2, 0, 1, 0]),
    "x_test": torch.randn(3, 4, generator=GENERATOR),
    "y_test": torch.tensor([3, 0, 1]),
}


def saved(path, **changes):
    tensors = {name: tensor for name, tensor in (TENSORS | changes).items() if tensor is not None}
    save_file(tensors, path / "own.safetensors")
    return f"tensors:{path / 'own.safetensors'}"


def test_float_tensors_are_taken_as_they_are(tmp_path):
    data = load(saved(tmp_path))
    assert torch.equal(data.train[0], TENSORS["x_train"])
    assert torch.equal(data.test[1], TENSORS["y_test"])
    assert data.classes == 4
    assert (data.natural, data.prepare, data.augment) == (None, None, None)


def test_float64_stays_float64_and_small_labels_become_int64(tmp_path):
    name = saved(
        tmp_path,
        x_train=TENSORS["x_train"].double(),
        x_test=TENSORS["x_test"].double(),
        y_train=TENSORS["y_train"].to(torch.uint8),
    )
    data = load(name)
    assert data.train[0].dtype == torch.float64
    assert data.train[1].dtype == torch.int64


def test_client_numbers_are_the_natural_split(tmp_path):
    data = load(saved(tmp_path, client=torch.tensor([70, -1, 70, 5, -1, 70])))
    assert [part.tolist() for part in data.natural] == [[1, 4], [3], [0, 2, 5]]
    assert data.client_names == ("-1", "5", "70")
    assert data.client_tests is None


def test_client_numbers_of_test_samples_give_clients_their_own_test_data(tmp_path):
    client = torch.tensor([300, -1, 300, 5, -1, 300])
    for tested, expected in (([300, 8, -1], [[2], [], [0]]), ([5, 5, 5], [[], [0, 1, 2], []])):
        data = load(saved(tmp_path, client=client, client_test=torch.tensor(tested, dtype=torch.int16)))
        assert [part.tolist() for part in data.client_tests] == expected
    uint8 = load(saved(tmp_path, client=client, client_test=torch.tensor([44, 5, 44], dtype=torch.uint8)))
    assert [part.tolist() for part in uint8.client_tests] == [[], [1], []]  # 300 is not 44 in another type


def test_uint8_images_are_normalised_by_their_training_part(tmp_path):
    x = torch.randint(0, 256, (6, 3, 4, 4), dtype=torch.uint8, generator=GENERATOR)
    data = load(saved(tmp_path, x_train=x, x_test=x[:3].clone()))
    prepared = data.prepare(data.train[0])
    assert prepared.mean((0, 2, 3)).abs().max() < 1e-5
    assert data.train[0].dtype == torch.uint8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "has no y_test"),
        ({"x_test": torch.randn(3, 5)}, "x_train and x_test must have the same"),
        ({"y_train": torch.zeros(5, dtype=torch.int64)}, "y_train must be 6 whole numbers"),
        ({"y_train": torch.zeros(6)}, "y_train must be 6 whole numbers"),
        ({"y_test": torch.tensor([0, -1, 2])}, "label -1"),
        ({"client": torch.tensor([1, 2])}, "client must be 6 whole numbers"),
        ({"client": torch.arange(6), "client_test": torch.zeros(3)}, "client_test must be 3 whole numbers"),
        ({"client_test": torch.arange(3)}, "has client_test but no client"),
        ({"x_train": torch.full((6, 4), torch.nan)}, "x_train has values that are not finite"),
        ({"x_train": torch.zeros(6), "x_test": torch.zeros(3)}, "must have a sample dimension"),
        ({"x_train": torch.zeros(6, 4).half(), "x_test": torch.zeros(3, 4).half()}, "use float32"),
        (
            {"x_train": torch.zeros(6, 4, dtype=torch.uint8), "x_test": torch.zeros(3, 4, dtype=torch.uint8)},
            "uint8, which is only for images",
        ),
        ({"x_train": torch.zeros(0, 4), "y_train": torch.zeros(0, dtype=torch.int64)}, "must have a sample dimension"),
    ],
)
def test_tensors_that_do_not_fit_are_rejected_by_name(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        load(saved(tmp_path, **changes))


def test_a_damaged_or_missing_file_is_named(tmp_path):
    name = saved(tmp_path)
    path = tmp_path / "own.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"own\.safetensors cannot be read as safetensors"):
        load(name)
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        load(name)
