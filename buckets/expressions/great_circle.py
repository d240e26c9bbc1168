"""Distances on the Earth, the same to the last bit on every machine.

The Earth is taken for a ball with its mean radius. The haversine of the angle between two points comes from their
latitudes and longitudes:

    near = sin²((lat1 - lat2) / 2) + cos(lat1) cos(lat2) sin²((lon1 - lon2) / 2)
    far  = sin²((lat1 + lat2) / 2) + cos(lat1) cos(lat2) cos²((lon1 - lon2) / 2)

`near` belongs to the second point, and `far`, which is 1 - near, to the point opposite to it; the tangent of half the
angle is sqrt(near / far). With both of them short distances are as accurate as those round half the Earth.

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


def distance_km(
    latitudes: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    latitude_difference: npt.NDArray[np.float64],
    latitude_sum: npt.NDArray[np.float64],
    longitude_difference: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """The shortest way between two points over the ground; float64, of any one shape; 0 for one point only.

    Sums and differences come from outside, where they are exact, since points may lie close together.

    Args:
        latitudes: of the two points, in degrees, -90 to 90.
        latitude_difference: in degrees.
        latitude_sum: in degrees.
        longitude_difference: in degrees, -360 to 360.
    """
    half = np.abs(longitude_difference) / 2
    folded = np.where(half > 90, 180 - half, half)
    cosines = _sine(90 - np.abs(latitudes[0])) * _sine(90 - np.abs(latitudes[1]))
    near = _sine(latitude_difference / 2) ** 2 + cosines * _sine(folded) ** 2
    far = _sine(latitude_sum / 2) ** 2 + cosines * _sine(90 - folded) ** 2
    return np.asarray(2 * EARTH_RADIUS_KM * _angle(np.sqrt(near), np.sqrt(far)))


def _sine(degrees: Any) -> Any:
    """The sine of -90 to 90 degrees, by its series."""
    angle = degrees * (math.pi / 180)
    square, found = angle * angle, np.zeros_like(angle)
    for power in range(21, 0, -2):
        found = 1 / math.factorial(power) - square * found
    return angle * found


def _angle(opposite: Any, adjacent: Any) -> Any:
    """The angle, in radians, between the longest side of a triangle with a right angle and the adjacent one."""
    tangent = np.minimum(opposite, adjacent) / np.maximum(opposite, adjacent)
    for _ in range(_HALVINGS):
        tangent = tangent / (1 + np.sqrt(1 + tangent * tangent))
    square, found = tangent * tangent, np.zeros_like(tangent)
    for power in range(17, 0, -2):
        found = 1 / power - square * found
    angle = 2**_HALVINGS * tangent * found
    return np.where(opposite > adjacent, math.pi / 2 - angle, angle)
