"""Finds regions of images, in MLIR and in FX graphs; needs no MLIR, because a warm start uses it."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import field

from mlirc.dialects.lazy_dataclass import dataclass


@dataclass
class Regions:
    """Disjoint sets of images, the regions: those of a region have one memory layout.

    above   the union-find forest: image -> one that is nearer to its region's root
    gains   by root: ns that channels last saves in the region
    """

    above: dict[Hashable, Hashable] = field(default_factory=dict)
    gains: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))

    def root(self, x: Hashable) -> Hashable:
        while (up := self.above.get(x, x)) != x:
            self.above[x] = x = self.above.get(up, up)
        return x

    def join(self, images: Iterable[Hashable]) -> None:
        roots = list(map(self.root, images))
        for k, other in enumerate(roots[1:]):
            first, other = self.root(roots[k]), self.root(other)
            if other != first:
                self.above[other] = first
                self.gains[first] += self.gains.pop(other, 0.0)

    def add(self, x: Hashable, gain: float) -> None:
        self.gains[self.root(x)] += gain

    def lies_last(self, x: Hashable) -> bool:
        return self.gain(x) > 0

    def gain(self, x: Hashable) -> float:
        return self.gains.get(self.root(x), 0.0)
