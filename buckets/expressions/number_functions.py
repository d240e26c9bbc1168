"""The functions of numbers that SQL does not have, on columns of decimals.

`ratio(a, b)`
    a / b.
`zscore(x, mean, deviation)`
    (x - mean) / deviation: by how many deviations x lies above the mean; NULL where the deviation is 0.
`geo_speed_kmh(latitude, longitude, earlier_latitude, earlier_longitude, seconds)`
    How fast somebody went from one point to the other, over the ground, in km/h with 3 digits after the point. NULL
    where anything is, where a latitude is not in -90 to 90 or a longitude not in -180 to 180, and for less than no
    time. `FASTEST_KMH` is the most that comes out, just short of the speed of light: so fast is who was in two
    places at one time. Whoever stays where they were goes at 0, and in no time too.

Distances on the Earth, the same to the last bit on every machine.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from buckets.expressions.decimals import Numbers, arithmetic, as_wide, sized

EARTH_RADIUS_KM: Final = 6371.0088  # The mean radius of the Earth, (2a + b) / 3 of WGS 84
_HALVINGS = 3


Degrees = npt.NDArray[np.float64]


def distance_km(
    latitude_difference: Degrees,
    latitude_sum: Degrees,
    from_pole: Degrees,
    other_from_pole: Degrees,
    longitude_difference: Degrees,
    longitude_supplement: Degrees,
) -> npt.NDArray[np.float64]:
    """Return the shortest way between two points over the ground; float64, of any one shape; 0 for one point only.

    Args:
        latitude_difference: in degrees, -180 to 180.
        latitude_sum: in degrees, -180 to 180.
        from_pole: degrees of latitude from the first point to the nearest pole, 0 to 90.
        other_from_pole: those of the second point.
        longitude_difference: in degrees, the shorter way round, 0 to 180.
        longitude_supplement: what it lacks of 180 degrees.
    """
    cosines = _sine(from_pole) * _sine(other_from_pole)
    near = _sine(latitude_difference / 2) ** 2 + cosines * _sine(longitude_difference / 2) ** 2
    far = _sine(latitude_sum / 2) ** 2 + cosines * _sine(longitude_supplement / 2) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * _angle(np.sqrt(near), np.sqrt(far)))


def _sine(degrees: Any) -> Any:
    """Return the sine of -90 to 90 degrees, by its series."""
    angle = degrees * (math.pi / 180)
    square, found = angle * angle, np.zeros_like(angle)
    for power in range(21, 0, -2):
        found = 1 / math.factorial(power) - square * found
    return angle * found


def _angle(opposite: Any, adjacent: Any) -> Any:
    """Return the angle, in radians, between the longest side of a triangle with a right angle and the adjacent one."""
    tangent = np.minimum(opposite, adjacent) / np.maximum(opposite, adjacent)
    for _ in range(_HALVINGS):
        tangent = tangent / (1 + np.sqrt(1 + tangent * tangent))
    square, found = tangent * tangent, np.zeros_like(tangent)
    for power in range(17, 0, -2):
        found = 1 / power - square * found
    angle = 2**_HALVINGS * tangent * found
    return np.where(opposite > adjacent, math.pi / 2 - angle, angle)


SPEED_DIGITS: Final = 3
FASTEST_KMH: Final = Decimal("999999999.999")
_FASTEST = int(FASTEST_KMH.scaleb(SPEED_DIGITS))
_SECONDS_PER_HOUR = 3600
_EXACT_INTEGERS = 2**53  # Up to here each integer is a double
_EXACT_POWERS = 22  # Up to here each power of ten is a double


def call(name: str, operands: Sequence[Numbers]) -> Numbers:
    """Return what a function makes of its operands, for any numbers that there can be."""
    if name == "geo_speed_kmh":
        return _geo_speed_kmh(*operands)
    dividend = operands[0] if name == "ratio" else arithmetic("-", operands[0], operands[1])
    return arithmetic("/", dividend, operands[-1])


def _geo_speed_kmh(
    latitude: Numbers, longitude: Numbers, earlier_latitude: Numbers, earlier_longitude: Numbers, seconds: Numbers
) -> Numbers:
    latitudes = _within(latitude, 90), _within(earlier_latitude, 90)
    longitudes = _within(longitude, 180), _within(earlier_longitude, 180)
    apart = arithmetic("-", *longitudes)
    full = 360 * 10**apart.scale
    one_way = sized(np.abs(as_wide(apart, full)), full)
    other_way = sized(full - one_way, full)
    shorter = Numbers(np.where(one_way < other_way, one_way, other_way), apart.scale, full, apart.valid)
    distance = distance_km(
        _doubles(arithmetic("-", *latitudes)),
        _doubles(arithmetic("+", *latitudes)),
        _doubles(_up_to(90, latitudes[0])),
        _doubles(_up_to(90, latitudes[1])),
        _doubles(shorter),
        _doubles(_up_to(180, shorter)),
    )
    valid = seconds.valid & np.asarray(seconds.scaled >= 0, np.bool_)
    for number in (*latitudes, *longitudes):
        valid = valid & number.valid
    time = np.where(valid, _doubles(seconds), 1.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        speed = distance * (_SECONDS_PER_HOUR * 10**SPEED_DIGITS) / time
    speed = np.where(distance == 0, 0, np.minimum(speed, _FASTEST))
    return Numbers(np.rint(speed).astype(np.int64), SPEED_DIGITS, _FASTEST, valid)


def _within(number: Numbers, most: int) -> Numbers:
    """Return numbers from `-most` to `most`; NULL for others."""
    largest = most * 10**number.scale
    is_within = np.asarray((number.scaled >= -largest) & (number.scaled <= largest), np.bool_)
    return Numbers(np.where(is_within, number.scaled, 0), number.scale, largest, number.valid & is_within)


def _up_to(degrees: int, angle: Numbers) -> Numbers:
    """Return what an angle of either sign lacks of so many degrees."""
    most = degrees * 10**angle.scale
    return Numbers(sized(most - np.abs(as_wide(angle, most)), most), angle.scale, most, angle.valid)


def _doubles(number: Numbers) -> npt.NDArray[np.float64]:
    """Return the nearest double to each number; infinity for what is beyond all of them."""
    scaled, scale = number.scaled, number.scale
    is_small = scaled.dtype != object and bool(np.all((scaled <= _EXACT_INTEGERS) & (scaled >= -_EXACT_INTEGERS)))
    if is_small and scale <= _EXACT_POWERS:
        return np.asarray(scaled / 10.0**scale)
    return np.asarray(np.frompyfunc(lambda each: _double(int(each), 10**scale), 1, 1)(scaled), np.float64)


def _double(dividend: int, divisor: int) -> float:
    try:
        return dividend / divisor
    except OverflowError:
        return float("inf") if dividend > 0 else float("-inf")
