"""Points and curves: the cost of an event over the size of the work."""

from dataclasses import dataclass
from math import log10


@dataclass(frozen=True, slots=True)
class Point:
    """The figures at one size."""

    size: int
    cost_us: float
    """Microseconds of an event."""
    peak_mb: float | None = None
    """The most memory of the process by then, in MB."""
    per_s: float | None = None
    """Events a second."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The cost of an event over the sizes of something."""

    name: str
    over: str
    """The thing that grows, such as `events in the backlog`."""
    cost: str
    """The kind of cost, such as `processor time of the relay`."""
    points: tuple[Point, ...]

    @property
    def spread(self) -> float:
        """The largest cost over the smallest."""
        costs = [each.cost_us for each in self.points]
        return max(costs) / min(costs)

    @property
    def slope(self) -> float:
        """
        How much the cost changes for ten times the work, as a share of the cost: 0 is flat.

        The line through the points that fits best, over the logarithm of the size, says it: one
        noisy point moves it little.
        """
        xs = [log10(each.size) if each.size else 0.0 for each in self.points]
        ys = [each.cost_us for each in self.points]
        middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
        spread = sum((x - middle_x) ** 2 for x in xs)
        if not spread:
            return 0.0
        by = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True))
        return by / spread / middle_y


def sizes(least: int, most: int) -> list[int]:
    """Return the powers of ten from `least` to `most`, powers of ten themselves."""
    found = [least]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found
