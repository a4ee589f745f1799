"""Label skew after Hsu, Qi and Brown (2019), "Measuring the Effects of Non-Identical Data Distribution".

Client i draws its label prior p_i ~ Dir(U, ..., U) and then the labels of its samples from p_i, without replacement:
where a class has run out, p_i is renormalised over the classes that are left.
"""

from __future__ import annotations

from fedmim.data.lazy_arrays import Floats, Integers, np


def dirichlet_counts(sizes: Integers, quotas: Integers, concentration: float, rng: np.random.Generator) -> Integers:
    """How many samples of each class each client gets, (clients, classes).

    Columns sum to `sizes` and rows to `quotas`, which have the same total. Clients draw in random order, so that the
    last to draw, who get what is left, are not always the same ids.
    """
    priors = _log_priors(len(quotas), len(sizes), concentration, rng)
    left = sizes.copy()
    counts = np.zeros((len(quotas), len(sizes)), dtype=np.int64)
    for client in rng.permutation(len(quotas)):
        missing = quotas[client]
        # A draw past the end of its class is drawn again from the others: the law of drawing one by one with
        # renormalisation. A pass that leaves any missing has emptied a class, so there are few passes.
        while missing:
            open_classes = np.flatnonzero(left)
            prior = priors[client, open_classes]
            prior = np.exp(prior - prior.max())
            drawn = np.minimum(rng.multinomial(missing, prior / prior.sum()), left[open_classes])
            counts[client, open_classes] += drawn
            left[open_classes] -= drawn
            missing -= drawn.sum()
    return counts


def _log_priors(clients: int, classes: int, concentration: float, rng: np.random.Generator) -> Floats:
    """Logarithms of unnormalised draws from Dir(U), (clients, classes).

    Dir(U) is Gamma(U) variables over their sum, and Gamma(U) = Gamma(U + 1) * uniform^(1/U). In logarithms
    nothing underflows at small U, and a prior whose whole mass lies on classes that ran out still knows the
    order of the rest.
    """
    # Below 1e-300 the division would overflow; there, as at 1e-300, one class has all.
    concentration = max(concentration, 1e-300)
    shape = (clients, classes)
    log_gamma = np.log(rng.standard_gamma(concentration + 1, shape))
    return log_gamma - rng.standard_exponential(shape) / concentration
