"""What a generated stream shall be like; checked when made, so that nothing is generated from nonsense."""

from dataclasses import dataclass
from datetime import UTC, datetime

from buckets.duration import DAY_MS
from buckets.errors import BucketsError
from buckets.moment import moment_ms

MOST_TRANSACTIONS = 20_000_000
MOST_DAYS = 3_660
MOST_ENTITIES = 5_000_000
MOST_DISORDER = 0.5
MOST_MALFORMED = 0.5
LONGEST_DELAY_MS = 7 * DAY_MS
TRANSACTIONS_PER_CASE = 200
"""For each case of all four patterns: up to 100 planted, and at least as many that are not."""
PAYERS_PER_CASE = 20
BENEFICIARIES_PER_CASE = 10
FEWEST_PAYERS = 100
FEWEST_BENEFICIARIES = 20
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)


def _refuse_outside(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        message = f"generator: {name} is {value}; the limits are {low:,} and {high:,}: choose one in between"
        raise BucketsError(message)


@dataclass(frozen=True)
class GeneratorSettings:
    """All that decides a stream: the same settings give the same bytes.

    Attributes:
        seed: of every random draw; 0 or more.
        transactions: different transactions, planted ones included. Collisions, duplicates and malformed
            lines come on top, each as many as its rate times this.
        days: length of the stream.
        start_time: ISO 8601; without a zone it is UTC.
        payers: people who may pay; many do so rarely.
        beneficiaries: who may be paid; a few are very busy.
        cards: at least one for every payer.
        fraud_cases: planted cases of each pattern.
        late_rate: share of transactions that arrive after later ones.
        max_delay_ms: the longest delay of a late transaction.
        duplicate_rate: share of transactions whose very same line comes again a little later.
        collision_rate: share of transactions that share payer, beneficiary, card and time with another one.
        malformed_rate: share of broken lines.
        rows_per_file: lines in one file of a folder.
    """

    seed: int = 7
    transactions: int = 200_000
    days: int = 30
    start_time: str = "2026-01-01T00:00:00Z"
    payers: int = 20_000
    beneficiaries: int = 2_000
    cards: int = 26_000
    fraud_cases: int = 5
    late_rate: float = 0.005
    max_delay_ms: int = 1_800_000
    duplicate_rate: float = 0.002
    collision_rate: float = 0.001
    malformed_rate: float = 0.0
    rows_per_file: int = 20_000

    def __post_init__(self) -> None:
        """Refuse what cannot be generated.

        Raises:
            BucketsError: a value outside its range, or values that do not fit each other.
        """
        _refuse_outside("seed", self.seed, 0, 2**63 - 1)
        _refuse_outside("transactions", self.transactions, 1, MOST_TRANSACTIONS)
        _refuse_outside("days", self.days, 1, MOST_DAYS)
        _refuse_outside("payers", self.payers, FEWEST_PAYERS, MOST_ENTITIES)
        _refuse_outside("beneficiaries", self.beneficiaries, FEWEST_BENEFICIARIES, MOST_ENTITIES)
        _refuse_outside("cards", self.cards, self.payers, MOST_ENTITIES)
        _refuse_outside("max_delay_ms", self.max_delay_ms, 1_000, LONGEST_DELAY_MS)
        _refuse_outside("rows_per_file", self.rows_per_file, 1, MOST_TRANSACTIONS)
        self._check_rates()
        self._check_fraud()
        self._check_times()

    def _check_rates(self) -> None:
        for name in ("late_rate", "duplicate_rate", "collision_rate", "malformed_rate"):
            _refuse_outside(name, getattr(self, name), 0, 1)
        together = self.late_rate + self.duplicate_rate + self.collision_rate
        if together > MOST_DISORDER:
            message = (
                f"generator: late_rate, duplicate_rate and collision_rate together are {together:g}; the "
                f"limit is {MOST_DISORDER:g}, because one transaction gets at most one of them: lower a rate"
            )
            raise BucketsError(message)
        if self.malformed_rate > MOST_MALFORMED:
            message = f"generator: malformed_rate is {self.malformed_rate:g}; the limit is {MOST_MALFORMED:g}: lower it"
            raise BucketsError(message)

    def _check_fraud(self) -> None:
        cases = self.fraud_cases
        if cases < 0:
            message = f"generator: fraud_cases is {cases}; the limit is 0: choose 0 for a stream without fraud"
            raise BucketsError(message)
        needs = {
            "transactions": (self.transactions, TRANSACTIONS_PER_CASE),
            "payers": (self.payers, PAYERS_PER_CASE),
            "beneficiaries": (self.beneficiaries, BENEFICIARIES_PER_CASE),
        }
        for name, (given, per_case) in needs.items():
            if given < cases * per_case:
                message = (
                    f"generator: {given:,} {name} are too few for {cases} planted cases of each pattern, "
                    f"which need {cases * per_case:,}: raise {name}, or lower fraud_cases to "
                    f"{given // per_case}"
                )
                raise BucketsError(message)

    def _check_times(self) -> None:
        if self.start_ms < moment_ms(EARLIEST) or self.end_ms > moment_ms(LATEST):
            message = (
                f"generator: {self.days} days from {self.start_time} do not lie in {EARLIEST:%Y-%m-%d} to "
                f"{LATEST:%Y-%m-%d}: choose another start_time or fewer days"
            )
            raise BucketsError(message)

    @property
    def start_ms(self) -> int:
        """The first possible event time, in ms since the epoch."""
        try:
            return moment_ms(datetime.fromisoformat(self.start_time))
        except ValueError:
            message = (
                f"generator: start_time {self.start_time!r} is no ISO 8601 time; write it as in 2026-01-01T00:00:00Z"
            )
            raise BucketsError(message) from None

    @property
    def end_ms(self) -> int:
        """The first time after the stream, in ms since the epoch."""
        return self.start_ms + self.days * DAY_MS
