"""Who takes part in planted cases: quiet payers and beneficiaries, each with a part in one case only."""

from dataclasses import dataclass

import numpy as np

from buckets.generator.settings import GeneratorSettings
from buckets.generator.transactions import Integers, Transactions


@dataclass(frozen=True)
class Cast:
    """The parts, one of each for every case number.

    Attributes:
        structurers: payers who split one large sum.
        collectors: beneficiaries of the split sums.
        testers: payers whose card numbers were stolen and are tried out.
        hurried: payers whose card is used five times in five minutes.
        mules: beneficiaries whom many pay.
        victims: payers with no other part, who pay the mules.
        shops: beneficiaries with no other part, where stolen cards are used.
    """

    structurers: Integers
    collectors: Integers
    testers: Integers
    hurried: Integers
    mules: Integers
    victims: Integers
    shops: Integers


def draw_cast(rng: np.random.Generator, settings: GeneratorSettings, background: Transactions) -> Cast:
    """Give out the parts among those who pay, or are paid, no more than the median."""
    cases = settings.fraud_cases
    payers = _quiet(rng, background.payer, settings.payers)[: 3 * cases]
    beneficiaries = _quiet(rng, background.beneficiary, settings.beneficiaries)[: 2 * cases]
    structurers, testers, hurried = payers.reshape(3, cases)
    collectors, mules = beneficiaries.reshape(2, cases)
    return Cast(
        structurers=structurers,
        collectors=collectors,
        testers=testers,
        hurried=hurried,
        mules=mules,
        victims=np.setdiff1d(np.arange(settings.payers), payers),
        shops=np.setdiff1d(np.arange(settings.beneficiaries), beneficiaries),
    )


def _quiet(rng: np.random.Generator, seen: Integers, count: int) -> Integers:
    activity = np.bincount(seen, minlength=count)
    return rng.permutation(np.flatnonzero(activity <= np.median(activity)))
