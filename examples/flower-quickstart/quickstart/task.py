"""Model, data, training and evaluation."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedmim.flower import FlowerOptimizer


class Net(nn.Module):
    """A small network for images of 8 x 8 pixels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        """Logits."""
        return self.layers(x)


def load_data(partition_id, num_partitions, batch_size):
    """The client's samples, sorted by class so that clients differ, and every fifth sample for tests."""
    x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    x, held_out = x.float() / 16, torch.arange(len(x)) % 5 == 0
    order = y[~held_out].argsort(stable=True)
    mine = order.chunk(num_partitions)[partition_id]
    train = TensorDataset(x[~held_out][mine], y[~held_out][mine])
    generator = torch.Generator().manual_seed(partition_id)
    trainloader = DataLoader(train, batch_size=batch_size, shuffle=True, generator=generator)
    return trainloader, DataLoader(TensorDataset(x[held_out], y[held_out]), batch_size=100)


def train(net, trainloader, epochs, lr, device):
    """Train the model; return the mean loss."""
    net.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = FlowerOptimizer(net, steps=epochs * len(trainloader))
    net.train()
    total = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(trainloader))


@torch.no_grad()
def test(net, testloader, device):
    """Mean loss and accuracy."""
    net.to(device).eval()
    loss, correct = 0.0, 0
    for images, labels in testloader:
        outputs = net(images.to(device))
        loss += nn.functional.cross_entropy(outputs, labels.to(device), reduction="sum").item()
        correct += (outputs.argmax(1) == labels.to(device)).sum().item()
    return loss / len(testloader.dataset), correct / len(testloader.dataset)
