"""Small complex contractions as in lattice QCD: products of 3x3 matrices, one on every site.

    PYTHONPATH=docs/scripts tensortune tune 'lattice:su3_planar(4096)'

A complex number is two real ones, and its product a sum over the parts that it is made of. The two
layouts hold the same numbers: `su3` keeps a site's together, as an array of structures, and
`su3_planar` keeps a component of all sites together, which is what vectors want.
"""

from tvm import te, tirx


def su3(sites: int, dtype: str = "float32"):
    """`out[x, a, b] = sum(u[x, a, c] * v[x, c, b])` over colours, parts last.

    Args:
        sites: Sites of the lattice.
        dtype: Type of the real numbers.
    """
    u = te.placeholder((sites, 3, 3, 2), dtype, "u")
    v = te.placeholder((sites, 3, 3, 2), dtype, "v")
    colour, part = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 2), "s")

    def product(x, a, b, r):
        other = v[x, colour, b, (r + part) % 2]
        return te.sum(_sign(r, part, dtype) * u[x, a, colour, part] * other, axis=[colour, part])

    return u, v, te.compute((sites, 3, 3, 2), product, "out")


def su3_planar(sites: int, dtype: str = "float32"):
    """The same with the parts first and the sites last; see `su3`."""
    u = te.placeholder((2, 3, 3, sites), dtype, "u")
    v = te.placeholder((2, 3, 3, sites), dtype, "v")
    colour, part = te.reduce_axis((0, 3), "c"), te.reduce_axis((0, 2), "s")

    def product(r, a, b, x):
        other = v[(r + part) % 2, colour, b, x]
        return te.sum(_sign(r, part, dtype) * u[part, a, colour, x] * other, axis=[colour, part])

    return u, v, te.compute((2, 3, 3, sites), product, "out")


def _sign(r, part, dtype):
    """Of two imaginary parts the product is a real part, and negative."""
    both = tirx.all(r == 0, part == 1)
    return tirx.if_then_else(both, tirx.const(-1, dtype), tirx.const(1, dtype))
