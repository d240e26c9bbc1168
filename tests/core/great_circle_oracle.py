"""The speed between two points with fifty digits, by series of Python's decimals."""

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction

RADIUS_KM = Decimal("6371.0088")
FASTEST = Fraction(999_999_999_999, 1000)
WIDE = Context(prec=50, rounding=ROUND_HALF_EVEN, Emax=10**6, Emin=-(10**6))
NOTHING = Decimal("1e-20")
"""Kilometres that are left of 0 by rounding."""


def arc_tangent(number: Decimal) -> Decimal:
    for _ in range(8):
        number = number / (1 + (1 + number * number).sqrt())
    total, term, power = Decimal(0), number, 1
    while abs(term) > Decimal("1e-60"):
        total, term, power = total + term / power, -term * number * number, power + 2
    return 256 * total


with localcontext(WIDE):
    PI = 4 * arc_tangent(Decimal(1))


def sine(degrees: Decimal) -> Decimal:
    angle, total, power = degrees * PI / 180, Decimal(0), 1
    term = angle
    while abs(term) > Decimal("1e-60"):
        total, term, power = total + term, -term * angle * angle / ((power + 1) * (power + 2)), power + 2
    return total


def cosine(degrees: Decimal) -> Decimal:
    return sine(90 - abs(degrees))


def distance_km(latitude: Decimal, longitude: Decimal, other_latitude: Decimal, other_longitude: Decimal) -> Decimal:
    """By the vectors that lead from the middle of the Earth to both points."""
    with localcontext(WIDE):
        vectors = [
            (cosine(lat) * cosine(lon), cosine(lat) * sine(lon), sine(lat))
            for lat, lon in ((latitude, longitude), (other_latitude, other_longitude))
        ]
        apart = sum(((a - b) ** 2 for a, b in zip(*vectors, strict=True)), Decimal(0)).sqrt()
        together = sum(((a + b) ** 2 for a, b in zip(*vectors, strict=True)), Decimal(0)).sqrt()
        if apart < together:
            return 2 * RADIUS_KM * arc_tangent(apart / together)
        return RADIUS_KM * (PI - 2 * arc_tangent(together / apart))


def speed_kmh(*numbers: Fraction) -> Fraction | None:
    """Latitude and longitude of two points, and seconds; not rounded."""
    *degrees, seconds = numbers
    if seconds < 0 or any(abs(each) > most for each, most in zip(degrees, (90, 180, 90, 180), strict=True)):
        return None
    with localcontext(WIDE):
        distance = distance_km(*(Decimal(each.numerator) / each.denominator for each in degrees))
    if distance < NOTHING:
        return Fraction(0)
    return min(Fraction(distance) * 3600 / seconds, FASTEST) if seconds else FASTEST
