"""Heart Disease (Janosi, Steinbrunn, Pfisterer and Detrano, UCI 1988): four hospitals as natural clients.

Label: any narrowing of a coronary artery (num > 0). A quarter of each hospital's patients, stratified by label, forms
the test part.

Missing values are `?` in the files. Zero cholesterol (all of Switzerland, a quarter of VA) and zero resting blood
pressure (one patient of VA) also mean missing. A hospital fills missing values from its own training part: with the
median of a quantity, or the most frequent value of a category. A feature that a hospital never measured is filled in
the same way from the training parts of all other hospitals.

Encoding: after filling, quantities are standardised with mean and standard deviation over the training parts of all
hospitals (two sums per feature, which a real federation can share). Yes-or-no features stay 0 and 1. Categories become
one column per value. This gives 22 columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fedmim.data.descriptor import Dataset, DatasetDescriptor, Download
from fedmim.data.holdout import stratified_holdout
from fedmim.data.lazy_arrays import Floats, Integers, Tensor, np, torch
from fedmim.errors import UserError

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HOSPITAL_FILES = tuple(f"processed.{hospital}.data" for hospital in HOSPITALS)


@dataclass(frozen=True)
class Feature:
    """One column of the files. `values` are the values of a category; empty for a quantity."""

    name: str
    values: tuple[float, ...] = ()
    zero_is_missing: bool = False


LARGEST_VALUE = 1e4  # limit for all quantities (years, mm Hg, mg/dl, beats per minute)
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


class HeartDisease(DatasetDescriptor):
    """The processed files of the four hospitals."""

    def find(self, directory: Path) -> Path:
        """The folder in `directory` that has the four processed files."""
        return self.require_files(directory / self.folder, HOSPITAL_FILES)

    def load(self, directory: Path) -> Dataset:
        """The patients as float32 features (n, 22); each hospital is a natural client."""
        folder = self.find(directory)
        tables = [self._read(folder / file) for file in HOSPITAL_FILES]
        hospital = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        everyone = np.concatenate(tables)
        label = (everyone[:, -1] > 0).astype(np.int64)
        train, test = stratified_holdout(2 * hospital + label, share=0.25)
        x = torch.from_numpy(_encode(_fill(everyone[:, :-1], hospital, train), train))
        y = torch.from_numpy(label)
        return Dataset(
            self.name,
            train=(x[train], y[train]),
            test=(x[test], y[test]),
            classes=self.classes,
            natural=_by_hospital(hospital[train]),
            client_names=HOSPITALS,
            client_tests=_by_hospital(hospital[test]),
        )

    def _read(self, path: Path) -> Floats:
        """A table (patients, 14) with NaN for missing values."""
        rows = []
        for number, line in enumerate(path.read_text(encoding="ascii", errors="replace").splitlines(), start=1):
            try:
                if line.strip():
                    rows.append(_patient(line))
            except ValueError as error:
                raise self.damaged(path, f"line {number}: {error}") from error
        if not rows:
            raise self.damaged(path, "it is empty")
        return np.array(rows)


def _by_hospital(hospital: Integers) -> tuple[Tensor, ...]:
    """The places of each hospital's patients."""
    return tuple(torch.from_numpy(np.flatnonzero(hospital == number)) for number in range(len(HOSPITALS)))


def _patient(line: str) -> list[float]:
    """The 13 features and the diagnosis of one patient, with NaN for missing features."""
    row = [math.nan if cell.strip() == "?" else float(cell) for cell in line.split(",")]
    if len(row) != len(FEATURES) + 1:
        raise ValueError(f"it has {len(row)} values, not {len(FEATURES) + 1}")
    if not math.isfinite(row[-1]):
        raise ValueError("it has no diagnosis")
    for column, feature in enumerate(FEATURES):
        value = row[column]
        if abs(value) > LARGEST_VALUE or (feature.values and value not in feature.values and not math.isnan(value)):
            raise ValueError(f"{value} is not a valid {feature.name}")
        if feature.zero_is_missing and value == 0:
            row[column] = math.nan
    return row


def _fill(table: Floats, hospital: Integers, train: Integers) -> Floats:
    """The table (patients, 13) with missing values filled in from training patients only."""
    filled = table.copy()
    is_training = np.isin(np.arange(len(table)), train)
    for column, feature in enumerate(FEATURES):
        is_missing = np.isnan(table[:, column])
        measured = is_training & ~is_missing
        for number in np.unique(hospital[is_missing]):
            own = measured & (hospital == number)
            source = own if own.any() else measured
            filled[is_missing & (hospital == number), column] = _typical(table[source, column], feature)
    return filled


def _typical(values: Floats, feature: Feature) -> float:
    """The median of a quantity, or the most frequent value of a category."""
    if not len(values):
        raise UserError(f"{HEART_DISEASE.name}: no hospital has a value of {feature.name}: these are not the UCI files")
    if not feature.values:
        return float(np.median(values))
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()])


def _encode(table: Floats, train: Integers) -> np.typing.NDArray[np.float32]:
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


HEART_DISEASE = HeartDisease(
    name="heart-disease",
    description="patients of four hospitals, which are the natural clients (UCI)",
    train_size=690,
    test_size=230,
    classes=2,
    folder="heart-disease",
    # UCI publishes no MD5; the zip file has its own checksums.
    downloads=(Download("https://archive.ics.uci.edu/static/public/45/heart+disease.zip", None),),
    defaults={
        "model": "logistic",
        "split": "natural",
        "clients": 4,
        "participation": 1.0,
        "rounds": 50,
        "batch_size": 16,
        "local_epochs": 1,
    },
)
