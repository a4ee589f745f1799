"""The built-in networks, and FlatModel, which treats any nn.Module as a function of one flat vector."""

from fedmim.models.calling import Loss
from fedmim.models.flat import FlatModel
from fedmim.models.networks import MODELS, make_model

__all__ = ["MODELS", "FlatModel", "Loss", "make_model"]
