"""Distances on the Earth, the same to the last bit on every machine.

The Earth is taken for a ball with its mean radius. The haversine of the angle between two points comes from their
latitudes and longitudes:

    near = sin²((lat1 - lat2) / 2) + cos(lat1) cos(lat2) sin²((lon1 - lon2) / 2)
    far  = sin²((lat1 + lat2) / 2) + cos(lat1) cos(lat2) cos²((lon1 - lon2) / 2)

`near` belongs to the second point, and `far`, which is 1 - near, to the point opposite to it; the tangent of half the
angle is sqrt(near / far). With both of them short distances are as accurate as those round half the Earth. Sums and
differences of angles come from outside, where they are exact: of two points that lie close together, or near a pole,
doubles would know the difference to a few digits only.

Sine and arc tangent are made of sums, products, quotients and square roots here, which IEEE 754 fixes. Those of numpy
and of C differ in the last bit from one processor to the next, and an event that is scored twice must get one result.
"""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

EARTH_RADIUS_KM: Final = 6371.0088
"""The mean radius of the Earth, (2a + b) / 3 of WGS 84."""
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
