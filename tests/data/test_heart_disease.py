"""The four hospitals: files in UCI's format, missing values filled from a hospital's own training part."""

import numpy as np
import pytest
import torch

from fedmim.data import load, partition
from fedmim.data.heart_disease import FEATURES, HOSPITALS
from fedmim.errors import UserError

SIZES = {"cleveland": 40, "hungarian": 32, "switzerland": 16, "va": 24}
CHOLESTEROL, THALLIUM = 4, 12  # columns of the files
# Columns of the encoded features: quantities and yes-or-no features take one, categories one a value.
WIDTH = [1 if len(feature.values) in (0, 2) else len(feature.values) for feature in FEATURES]
START = np.concatenate([[0], np.cumsum(WIDTH)])


def patient(number, label):
    row = [40 + number, number % 2, 1 + number % 4, 120 + number, 200 + number, 0, number % 3, 150 - number]
    return [*row, (number + 1) % 2, number / 10, 1 + number % 3, number % 4, (3, 6, 7)[number % 3], label]


def tables():
    return {name: [patient(n, (n % 2) * (1 + n % 4)) for n in range(size)] for name, size in SIZES.items()}


def write(directory, rows):
    folder = directory / "heart-disease"
    folder.mkdir(exist_ok=True)
    for name, patients in rows.items():
        lines = [",".join(str(cell) for cell in row) for row in patients]
        (folder / f"processed.{name}.data").write_text("\n".join(lines) + "\n")
    return folder


def test_sizes_labels_and_natural_clients(tmp_path):
    write(tmp_path, tables())
    data = load("heart-disease", tmp_path)
    x, y = data.train
    assert x.shape == (84, 22)
    assert (x.dtype, y.dtype, data.classes) == (torch.float32, torch.int64, 2)
    assert [len(part) for part in data.natural] == [30, 24, 12, 18]
    assert torch.equal(torch.cat(data.natural), torch.arange(84))
    # Half of each hospital is ill, and the test part is stratified.
    assert [int(y[part].sum()) for part in data.natural] == [15, 12, 6, 9]
    assert int(data.test[1].sum()) == 14
    assert data.client_names == ("cleveland", "hungarian", "switzerland", "va")
    assert [len(part) for part in data.client_tests] == [10, 8, 4, 6]
    assert [int(data.test[1][part].sum()) for part in data.client_tests] == [5, 4, 2, 3]
    parts = partition(y, "natural", 4, seed=0, natural=data.natural)
    assert len(parts) == 4


def test_quantities_are_standardised_over_all_training_parts_and_categories_are_one_hot(tmp_path):
    write(tmp_path, tables())
    x = load("heart-disease", tmp_path).train[0].double()
    for column, feature in enumerate(FEATURES):
        block = x[:, START[column] : START[column + 1]]
        if not feature.values:
            assert abs(block.mean()) < 1e-6
            assert abs(block.std(correction=0) - 1) < 1e-6
        else:
            assert set(block.unique().tolist()) <= {0.0, 1.0}
        if len(feature.values) > 2:
            assert (block.sum(1) == 1).all()


def cholesterol_by_hospital(directory):
    """The raw column is 200 + number, so a linear map brings the standardised values back."""
    data = load("heart-disease", directory)
    return [data.train[0][part, START[CHOLESTEROL]].double() for part in data.natural]


def test_a_missing_quantity_is_the_median_of_the_hospitals_own_training_part(tmp_path):
    rows = tables()
    for row in rows["va"]:
        row[CHOLESTEROL] = 300  # whatever VA's training part is, its median is 300
    rows["va"][3][CHOLESTEROL] = "?"
    rows["va"][4][CHOLESTEROL] = 0  # no living patient has none: missing as well
    write(tmp_path, rows)
    va = cholesterol_by_hospital(tmp_path)[3]
    assert va.unique().numel() == 1


def test_a_quantity_that_a_hospital_never_measured_is_the_median_of_the_others_training_parts(tmp_path):
    rows = tables()
    for name in HOSPITALS:
        for row in rows[name]:
            row[CHOLESTEROL] = {"switzerland": 0, "hungarian": "?"}.get(name, 210)
    rows["cleveland"][0][CHOLESTEROL] = 410
    rows["cleveland"][1][CHOLESTEROL] = 411
    write(tmp_path, rows)
    _, hungarian, switzerland, va = cholesterol_by_hospital(tmp_path)
    assert hungarian.unique().tolist() == switzerland.unique().tolist() == va.unique().tolist()


def test_a_missing_category_is_the_most_frequent_of_the_hospitals_own(tmp_path):
    rows = tables()
    for row in rows["hungarian"]:
        row[THALLIUM] = 7
    rows["hungarian"][5][THALLIUM] = rows["hungarian"][6][THALLIUM] = "?"
    write(tmp_path, rows)
    data = load("heart-disease", tmp_path)
    hungarian = data.train[0][data.natural[1]][:, START[THALLIUM] : START[THALLIUM + 1]]
    assert hungarian.tolist() == [[0, 0, 1]] * len(hungarian)


def test_nothing_of_the_test_part_reaches_the_training_features(tmp_path):
    """Change every test patient: training features stay bit for bit. Which are test patients, their ages tell."""
    rows = tables()
    for offset, name in enumerate(HOSPITALS):
        for number, row in enumerate(rows[name]):
            row[0] = 1000 * offset + number  # ages that name the patient
            if number % 5 == 0:
                row[CHOLESTEROL] = "?"
    write(tmp_path, rows)
    before = load("heart-disease", tmp_path)
    train_ages = before.train[0][:, 0]
    ages = np.array([row[0] for name in HOSPITALS for row in rows[name]], dtype=np.float64)
    every = torch.cat([train_ages, before.test[0][:, 0]]).double().sort().values
    # The standardised ages are an increasing function of the ages: match them in order.
    trained = {float(age) for age, value in zip(np.sort(ages), every, strict=True) if value in train_ages.double()}
    for name in HOSPITALS:
        for row in rows[name]:
            if row[0] not in trained:
                row[CHOLESTEROL] = 999
                row[7] = 1
    write(tmp_path, rows)
    after = load("heart-disease", tmp_path)
    assert torch.equal(before.train[0], after.train[0])
    assert not torch.equal(before.test[0], after.test[0])


def test_the_test_part_is_fixed(tmp_path):
    write(tmp_path, tables())
    assert torch.equal(load("heart-disease", tmp_path).test[0], load("heart-disease", tmp_path).test[0])


GOOD = "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it is empty"),
        (GOOD + "\n" + GOOD[:20], "line 2: it has"),
        (GOOD + ",5", "line 1: it has 15 values, not 14"),
        (GOOD.replace("145.0", "abc"), "line 1: could not convert"),
        (GOOD.replace("145.0", "inf"), "inf is not a valid resting blood pressure"),
        (GOOD.replace("63.0,1.0", "63.0,5.0"), "5.0 is not a valid sex"),
        (GOOD[:-1] + "?", "line 1: it has no diagnosis"),
        ("é" + GOOD, "line 1: could not convert"),
    ],
)
def test_damaged_files_are_rejected_by_name_and_line(tmp_path, content, message):
    folder = write(tmp_path, tables())
    (folder / "processed.va.data").write_text(content)
    with pytest.raises(UserError, match=rf"processed\.va\.data is damaged: .*{message}"):
        load("heart-disease", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    folder = write(tmp_path, tables())
    (folder / "processed.hungarian.data").unlink()
    with pytest.raises(UserError, match=r"processed\.hungarian\.data is missing"):
        load("heart-disease", tmp_path)
