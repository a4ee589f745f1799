"""Heart Disease (Janosi, Steinbrunn, Pfisterer and Detrano, UCI 1988): four hospitals, the natural clients.

Label: any narrowing of a coronary artery (num > 0). Every hospital gives a quarter of its patients,
stratified by label, to the common test part.

Missing values. `?` in the files; so are the zeros of cholesterol (all of Switzerland, a quarter of VA) and of
resting blood pressure (one of VA), which no living patient has. A hospital fills them from its own training
part: by the median where the feature is a quantity, by the most frequent value where it is a category. A
feature that a hospital never measured is filled in the same way from the training parts of all the others
together.

Encoding. Quantities are standardised by mean and standard deviation over the training parts of all hospitals,
after filling (two sums a feature, which a real federation can share); yes-or-no features stay 0 and 1;
categories become one column for each value. Together 22 columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedmim.data.dataset import Dataset
from fedmim.data.holdout import holdout
from fedmim.data.locate import fetch_anew, require_files
from fedmim.errors import UserError

NAME = "heart-disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FILES = tuple(f"processed.{hospital}.data" for hospital in HOSPITALS)

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Feature:
    """One column of the files. `values` are those of a category; a quantity has none."""

    name: str
    values: tuple[float, ...] = ()
    zero_is_missing: bool = False


YES_OR_NO = (0.0, 1.0)
FEATURES = (
    Feature("age"),
    Feature("sex", YES_OR_NO),
    Feature("chest pain type", (1, 2, 3, 4)),
    Feature("resting blood pressure", zero_is_missing=True),
    Feature("cholesterol", zero_is_missing=True),
    Feature("fasting blood sugar above 120 mg/dl", YES_OR_NO),
    Feature("resting electrocardiogram", (0, 1, 2)),
    Feature("maximum heart rate"),
    Feature("angina at exercise", YES_OR_NO),
    Feature("ST depression at exercise"),
    Feature("slope of the ST segment", (1, 2, 3)),
    Feature("major vessels coloured by fluoroscopy"),
    Feature("thallium scan", (3, 6, 7)),
)


def find_heart_disease(directory: Path) -> Path:
    """The folder in `directory` that has the four processed files."""
    return require_files(NAME, directory / NAME, FILES)


def load_heart_disease(directory: Path) -> Dataset:
    """The patients as float32 features (n, 22), with one natural client a hospital."""
    folder = find_heart_disease(directory)
    tables = [_read(folder / file) for file in FILES]
    hospital = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    everyone = np.concatenate(tables)
    label = (everyone[:, -1] > 0).astype(np.int64)
    train, test = holdout(2 * hospital + label, share=0.25)
    x = torch.from_numpy(_encode(_fill(everyone[:, :-1], hospital, train), train))
    y = torch.from_numpy(label)
    natural = [torch.from_numpy(np.flatnonzero(hospital[train] == number)) for number in range(len(tables))]
    return Dataset(NAME, train=(x[train], y[train]), test=(x[test], y[test]), classes=2, natural=tuple(natural))


def _read(path: Path) -> Table:
    """Patients by 14 columns, NaN where a value is missing."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="ascii", errors="replace").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = [np.nan if cell.strip() == "?" else float(cell) for cell in line.split(",")]
        except ValueError as error:
            raise _damaged(path, f"line {number}: {error}") from error
        _check(path, number, row)
        rows.append(row)
    if not rows:
        raise _damaged(path, "it is empty")
    table = np.array(rows)
    for column, feature in enumerate(FEATURES):
        if feature.zero_is_missing:
            table[table[:, column] == 0, column] = np.nan
    return table


def _check(path: Path, number: int, row: list[float]) -> None:
    if len(row) != len(FEATURES) + 1:
        raise _damaged(path, f"line {number} has {len(row)} values, not {len(FEATURES) + 1}")
    if not np.isfinite(row[-1]):
        raise _damaged(path, f"line {number} has no diagnosis")
    for feature, value in zip(FEATURES, row, strict=False):
        known = np.isnan(value) or value in feature.values if feature.values else not np.isinf(value)
        if not known:
            raise _damaged(path, f"line {number}: {value} is no value of {feature.name}")


def _fill(table: Table, hospital: NDArray[np.int64], train: NDArray[np.int64]) -> Table:
    """The table (patients, 13) with every missing value replaced, from training patients only."""
    filled = table.copy()
    trains = np.zeros(len(table), dtype=np.bool_)
    trains[train] = True
    for column, feature in enumerate(FEATURES):
        measured = trains & ~np.isnan(table[:, column])
        for number in np.unique(hospital):
            own = measured & (hospital == number)
            source = own if own.any() else measured
            missing = (hospital == number) & np.isnan(table[:, column])
            if missing.any():
                filled[missing, column] = _typical(table[source, column], feature)
    return filled


def _typical(values: NDArray[np.float64], feature: Feature) -> float:
    if not len(values):
        raise UserError(f"{NAME}: no hospital has a value of {feature.name}: the four files are not the UCI ones")
    if not feature.values:
        return float(np.median(values))
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()])


def _encode(table: Table, train: NDArray[np.int64]) -> NDArray[np.float32]:
    """The filled table (patients, 13) as model inputs (patients, 22)."""
    columns = []
    for feature, values in zip(FEATURES, table.T, strict=True):
        if feature.values == YES_OR_NO:
            columns.append(values)
        elif feature.values:
            columns += [(values == value).astype(np.float64) for value in feature.values]
        else:
            deviation = values[train].std()
            columns.append((values - values[train].mean()) / (deviation if deviation > 0 else 1))
    return np.stack(columns, axis=1).astype(np.float32)


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}; {fetch_anew(NAME, path.parent)}")
