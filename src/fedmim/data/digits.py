"""scikit-learn's digits: 1,797 handwritten digits of 8x8 pixels. No download, they come with scikit-learn.

A fixed, stratified fifth is the test part. Pixels are normalised with the mean and standard deviation of the training
part.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fedmim.data.descriptor import Dataset, DatasetDescriptor
from fedmim.data.holdout import stratified_holdout
from fedmim.data.lazy_arrays import np, torch
from fedmim.errors import UserError


class Digits(DatasetDescriptor):
    """The file that scikit-learn installs."""

    def load(self, directory: Path) -> Dataset:
        """The digits as float32 images (n, 1, 8, 8)."""
        # Read the file directly: importing scikit-learn takes longer than training for a few rounds.
        spec = find_spec("sklearn")
        if spec is None or spec.origin is None:
            raise UserError("digits: scikit-learn is not installed; pip install scikit-learn")
        table = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
        x = torch.from_numpy(table[:, :-1].astype(np.float32)).view(-1, 1, 8, 8)
        y = torch.from_numpy(table[:, -1].astype(np.int64))
        train, test = stratified_holdout(y.numpy(), share=0.2)
        x = (x - x[train].mean()) / x[train].std()
        return Dataset(self.name, train=(x[train], y[train]), test=(x[test], y[test]), classes=self.classes)


DIGITS = Digits(
    name="digits",
    description="grey 8x8 handwritten digits, installed with scikit-learn: no download",
    train_size=1438,
    test_size=359,
    classes=10,
    defaults={"model": "mlp", "rounds": 200, "batch_size": 5},
    target=0.9,
)
