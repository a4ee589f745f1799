"""Random settings within the conditions of the lemmas and theorems, for checking them on many runs."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fedmim.theory.constants import largest_rate, rate_caps
from fedmim.theory.problem import Federation, Inertia, Problem
from fedmim.theory.quadratics import Quadratics
from fedmim.theory.synthetic import Synthetic
from fedmim.theory.valleys import Valleys


@dataclass(frozen=True)
class Setting:
    """A problem with its exact constants, a federation, weights, and a rate for the lemmas and one for the theorems."""

    synthetic: Synthetic
    problem: Problem
    federation: Federation
    inertia: Inertia
    lemma_rate: float
    """At most 1 / (4 L K sqrt(A)), which is over 16 times what the theorems admit."""
    theorem_rate: float


def random_setting(seed: int) -> Setting:
    """A setting, the same for the same seed: convex or not, with noise or not, all clients or some, J from 0 to 3."""
    draw = random.Random(seed)
    clients, steps = draw.randint(2, 16), draw.randint(1, 8)
    active = clients if draw.random() < 0.3 else draw.randint(1, clients)
    dimension, spread, sigma = draw.randint(1, 6), draw.choice((0.0, 0.5, 1.0, 3.0)), draw.choice((0.0, 0.3, 2.0))
    kind: type[Quadratics | Valleys] = draw.choice((Quadratics, Valleys))
    synthetic = kind.draw(clients, dimension, spread, sigma, seed=seed)
    memory = draw.randint(0, 3)
    raw = [draw.random() for _ in range(memory)]
    share = draw.choice((0.0, 0.5, 0.9, 0.98)) / (sum(raw) or 1)
    beta = tuple(draw.uniform(0, 1) for _ in range(draw.randint(0, memory)))
    inertia = Inertia(tuple(share * weight for weight in raw), beta)
    problem, federation = synthetic.problem(), Federation(clients, active, steps)
    caps = rate_caps(problem, federation, inertia)
    return Setting(
        synthetic,
        problem,
        federation,
        inertia,
        lemma_rate=draw.uniform(0.05, 1) * caps["eta <= 1 / (4 L K sqrt(A))"],
        theorem_rate=draw.uniform(0.05, 0.95) * largest_rate(problem, federation, inertia),
    )
