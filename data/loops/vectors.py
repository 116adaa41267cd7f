"""How long vectors are good to sum up in: LLVM makes single elements of most. Knows no TVM.

Good ones are one, two or four native vectors long, or no longer than one: LLVM takes a native
vector for a shorter one, of whatever length. Register tiles of eight rows, float32 with 16 elements
in a native vector, on one core, in GFLOP/s:

    columns  vectors of so many elements
        100  16: 104, 32: 107 (their last round cut short); 10: 73; 20: 11, 25: 10, 50: 5
         96  16: 117, 32: 116; 12: 89, 8: 99, 6: 64; 24: 11, 48: 5
         49  16: 74, 8: 84 (cut short); 7: 71; 49: 5
         14  14: 98, 7: 71, 4: 34, none: 11

Elsewhere any length will do. Tiles that are written back in vectors of 48 elements or of 16 take as
long, softmax's exponentials are 4% slower to 15% faster with 20 to 28 elements than with 10 to 16,
and partial results of a factored reduction want to be long: a norm of 96x200 takes 2.1 us with 10,
1.3 with 20, 1.1 with 50.
"""

from __future__ import annotations

from .legality import MAX_LANES


def is_good(lanes: int, native: int) -> bool:
    """Whether sums in vectors of so many elements stay vectors.

    Args:
        lanes: The elements of a vector.
        native: Those of a native one.
    """
    return lanes <= native or (lanes in (2 * native, 4 * native) and lanes <= MAX_LANES)


def lanes_of(extent: int, native: int) -> int:
    """How long a vector to make of a loop; where it is no divisor, its last round is cut short.

    Args:
        extent: The loop's iterations.
        native: Elements of a native vector.
    """
    if is_good(extent, native):
        return extent
    double = 2 * native
    return double if extent % double == 0 and is_good(double, native) else native


def longest(most: int, native: int) -> int:
    """The longest good vector of at most `most` elements."""
    return max(d for d in (most, 2 * native, native) if d <= most and is_good(d, native))
