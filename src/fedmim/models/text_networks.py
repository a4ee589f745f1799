"""The networks for text: a sequence of tokens (length,) to scores of what follows it."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor, nn

WIDTH, HEADS = 64, 4  # of the transformer


def lstm(shape: tuple[int, ...], classes: int, tokens: int) -> nn.Module:
    """Embedding of 8, two LSTM layers of 256 units, as in LEAF's Shakespeare model."""
    return LastOutputLSTM(tokens, classes, embedding=8, hidden=256)


def transformer(shape: tuple[int, ...], classes: int, tokens: int) -> nn.Module:
    """Two pre-norm blocks of width 64 with 4 heads, and learned positions."""
    return Transformer(tokens, classes, length=shape[0], blocks=2)


class LastOutputLSTM(nn.Module):
    """A two-layer LSTM; the output at the last token gives the scores."""

    def __init__(self, tokens: int, classes: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, length) to scores (B, classes)."""
        outputs, _ = self.lstm(self.embedding(x))  # (B, length, hidden)
        scores: Tensor = self.head(outputs[:, -1])
        return scores


class Transformer(nn.Module):
    """A pre-norm transformer (Xiong et al. 2020); the last token gives the scores.

    Attention is not masked: what is predicted is not part of the input.
    """

    def __init__(self, tokens: int, classes: int, length: int, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, WIDTH)
        self.positions = nn.Parameter(torch.empty(length, WIDTH))
        self.blocks = nn.Sequential(*(Block(WIDTH, HEADS) for _ in range(blocks)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, classes)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, length) to scores (B, classes)."""
        h = self.blocks(self.embedding(x) + self.positions)
        scores: Tensor = self.head(self.norm(h[:, -1]))
        return scores


class Block(nn.Module):
    """h + attention(norm(h)), then h + mlp(norm(h)).

    Attention is written with matrix products, which torch.func.vmap can batch over clients.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        """(B, length, width) to the same shape."""
        h = h + self.attention(self.norm1(h))
        out: Tensor = h + self.mlp(self.norm2(h))
        return out

    def attention(self, h: Tensor) -> Tensor:
        """softmax(q k^T / sqrt(width of a head)) v, in each head."""
        batch, length, width = h.shape
        split = self.qkv(h).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind()  # (B, heads, length, width of a head)
        weights = (q @ k.transpose(-2, -1) / sqrt(width // self.heads)).softmax(dim=-1)
        out: Tensor = self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return out
