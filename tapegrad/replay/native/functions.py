"""Scalar functions for which the processor has no instruction.

Each is written for one dtype, `name_dtype`, in the small language of expressions: arithmetic,
comparisons, `where`, `fma`, `rint`, and `bits`/`of_bits`, which reinterpret a float as an integer
of the same size and back. `scalar.py` parses this file and inlines the functions into the loops
that use them, where LLVM vectorises them. The helpers at the top define the language on NumPy
arrays, for tests.

The polynomials are minimax fits; the largest errors, over all float32 in range, are in the tests.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import copysign, fabs, inf, where

# -- the language on NumPy arrays --------------------------------------------------------------


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return (np.float64(x) * np.float64(y) + np.float64(z)).astype(np.float32)


def quotient(x: Any, y: Any) -> Any:
    """x / y; the last bits may be wrong, and 1 / 1e38 may be 0."""
    return x / y


def bits(x: Any) -> Any:
    """The bits of a float as an integer."""
    return x.view(np.int32)


def of_bits(x: Any) -> Any:
    """The float with the bits of an integer."""
    return np.asarray(x, np.int32).view(np.float32)


def as_float32(x: Any) -> Any:
    """A number as a float32."""
    return np.asarray(x).astype(np.float32)


def as_float64(x: Any) -> Any:
    """A number as a float64."""
    return np.asarray(x).astype(np.float64)


# -- rounding ----------------------------------------------------------------------------------


def to_odd_float64(x: Any) -> Any:
    # Round to odd: truncate x and, if that is inexact, set the last bit. Rounding the result to a
    # half type then rounds x only once.
    near = as_float32(x)
    back = as_float64(near)
    i = bits(near)
    i = where(fabs(back) > fabs(x), i - 1, i)
    return of_bits(where(back != x, i | 1, i))


# -- exponentials ------------------------------------------------------------------------------


def _bend_float32(r: Any) -> Any:
    # (exp(r) - 1 - r) / (r * r) for -0.35 < r < 0.35.
    p = fma(r, 0.0013819900341331959, 0.008368688635528088)
    p = fma(p, r, 0.041668277233839035)
    p = fma(p, r, 0.1666652113199234)
    return fma(p, r, 0.4999999403953552)


def _scaled_float32(x: Any, shifted: Any) -> Any:
    # x * 2**n, where n is in the low bits of shifted = n + 1.5 * 2**23; the shift by 23 drops the
    # other bits. Scales in two steps, so that results near both ends of the range are right.
    n = bits(shifted)
    half = n >> 1
    return x * of_bits((half << 23) + 1065353216) * of_bits(((n - half) << 23) + 1065353216)


def exp_float32(x: Any) -> Any:
    # x = n ln 2 + r; adding 1.5 * 2**23 rounds n to an integer in the low bits, NaN passes through.
    limited = where(x > 89.0, 89.0, x)
    limited = where(limited < -104.0, -104.0, limited)
    shifted = fma(limited, 1.4426950408889634, 12582912.0)
    n = shifted - 12582912.0
    r = fma(n, -0.693145751953125, limited)
    r = fma(n, -1.42860682030941723212e-6, r)
    return _scaled_float32(fma(fma(_bend_float32(r), r, 1.0), r, 1.0), shifted)


def power_float32(x: Any) -> Any:
    # exp(x) for x <= 0.1, with half of the instructions. Results below 1e-38 are 0, because the
    # bits of 2**n are 0 there. Near x = 0 the last digit is right; small results lose digits.
    limited = where(x < -88.0296919311, -88.0296919311, x)
    shifted = fma(limited, 1.4426950408889634, 12582912.0)
    r = fma(shifted - 12582912.0, -0.6931471805599453, limited)
    return fma(fma(_bend_float32(r), r, 1.0), r, 1.0) * of_bits((bits(shifted) << 23) + 1065353216)


def power_float64(x: Any) -> Any:
    return np.exp(x)


def expm1_float32(x: Any) -> Any:
    # (exp(r) - 1) * 2**n + (2**n - 1), all halved so that 2**(n - 1) exists for every n.
    limited = where(x > 89.0, 89.0, x)
    limited = where(limited < -18.0, -18.0, limited)
    shifted = fma(limited, 1.4426950408889634, 12582912.0)
    n = shifted - 12582912.0
    r = fma(n, -0.693145751953125, limited)
    r = fma(n, -1.42860682030941723212e-6, r)
    half = of_bits((bits(shifted) << 23) + 1056964608)
    y = fma(fma(_bend_float32(r) * r, r, r), half, half - 0.5)
    return where(fabs(x) < 1e-8, x, y + y)  # halving loses bits of the smallest numbers


def exp2_float32(x: Any) -> Any:
    limited = where(x > 129.0, 129.0, x)
    limited = where(limited < -150.0, -150.0, limited)
    shifted = limited + 12582912.0
    r = (limited - (shifted - 12582912.0)) * 0.6931471805599453
    return _scaled_float32(fma(fma(_bend_float32(r), r, 1.0), r, 1.0), shifted)


def sigmoid_float32(x: Any) -> Any:
    return quotient(1.0, 1.0 + exp_float32(-x))


def sigmoid_float64(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def tanh_float32(x: Any) -> Any:
    t = fabs(x)
    s = x * x
    p = fma(s, 0.002118015196174383, -0.008150693960487843)
    p = fma(p, s, 0.02169015258550644)
    p = fma(p, s, -0.05394488945603371)
    p = fma(p, s, 0.13333190977573395)
    p = fma(p, s, -0.3333333134651184)
    near = fma(p * s, x, x)
    far = 1.0 - quotient(2.0, exp_float32(t + t) + 1.0)
    return copysign(where(t < 0.625, near, far), x)  # near loses the sign of 0


# -- logarithms --------------------------------------------------------------------------------


def _log_float32(f: Any, power: Any) -> Any:
    # log((1 + f) * 2**power) for -1/3 <= f < 1/3.
    p = fma(f, 0.12028084695339203, -0.1286531239748001)
    p = fma(p, f, 0.10749393701553345)
    p = fma(p, f, -0.12191665172576904)
    p = fma(p, f, 0.14304828643798828)
    p = fma(p, f, -0.16679833829402924)
    p = fma(p, f, 0.19999587535858154)
    p = fma(p, f, -0.24999815225601196)
    p = fma(p, f, 0.3333333730697632)
    s = f * f
    p = fma(power, 1.42860682030941723212e-6, p * s * f)
    p = fma(s, -0.5, p) + f
    return fma(power, 0.693145751953125, p)


def log_float32(x: Any) -> Any:
    # x = 2**e * m with m in [2/3, 4/3); subnormal numbers are scaled into the normal range first.
    tiny = x < 1.1754943508222875e-38
    scaled = where(tiny, x * 8388608.0, x)
    i = bits(scaled)
    e = (i - 1059760811) >> 23
    m = of_bits(i - (e << 23))
    y = _log_float32(m - 1.0, as_float32(e) - where(tiny, 23.0, 0.0))
    return where(x > 0.0, where(x == inf, inf, y), where(x == 0.0, -inf, np.nan * x))


def log1p_float32(x: Any) -> Any:
    # 1 + x = 2**e * m, but m - 1 = x * 2**-e + (2**-e - 1) uses x: 1 + x has lost digits.
    e = (bits(x + 1.0) - 1059760811) >> 23
    f = of_bits(bits(x) - (e << 23)) + fma(of_bits((129 - e) << 23), 0.25, -1.0)
    y = _log_float32(f, as_float32(e))
    y = where(x > -1.0, where(x == inf, inf, y), where(x == -1.0, -inf, np.nan * x))
    return where(x == 0.0, x, y)


# -- the error function and the normal distribution --------------------------------------------


def erf_float32(x: Any) -> Any:
    # For |x| >= 0.92 it is 1 - exp(-x * x) * q; derivatives need the same exponential and share it.
    t = fabs(x)
    s = x * x
    p = fma(s, -0.0006003800663165748, 0.004995853640139103)
    p = fma(p, s, -0.026768580079078674)
    p = fma(p, s, 0.11281877011060715)
    p = fma(p, s, -0.3761250078678131)
    near = fma(x, fma(p, s, 0.12837915122509003), x)
    u = where(t > 4.0, 4.0, t) - 1.5
    q = fma(u, -0.00047036155592650175, 0.0020710097160190344)
    q = fma(q, u, -0.005324019584804773)
    q = fma(q, u, 0.013306059874594212)
    q = fma(q, u, -0.03289460763335228)
    q = fma(q, u, 0.07616207748651505)
    q = fma(q, u, -0.16362398862838745)
    q = fma(q, u, 0.32158520817756653)
    far = fma(-exp_float32(-s), q, 1.0)
    return where(t < 0.92, near, copysign(far, x))


def _bell_float32(x: Any) -> Any:
    # exp(-x * x / 2) = 2**(n + r). Results below 1e-38 are 0, because the bits of 2**n are 0 there.
    # Rounding x * x loses digits of small results anyway, so the factor 1 / (2 ln 2) may lose more.
    s = -0.7213475204444817 * (x * x)
    limited = where(s < -127.0, -127.0, s)
    shifted = limited + 12582912.0
    r = limited - (shifted - 12582912.0)
    p = fma(r, 0.00015353361959569156, 0.0013398873852565885)
    p = fma(p, r, 0.00961843691766262)
    p = fma(p, r, 0.055503323674201965)
    p = fma(p, r, 0.24022647738456726)
    p = fma(p, r, 0.6931471824645996)
    return fma(p, r, 1.0) * of_bits((bits(shifted) << 23) + 1065353216)


def normal_pdf_float32(x: Any) -> Any:
    return 0.3989422804014327 * _bell_float32(x)


def normal_pdf_float64(x: Any) -> Any:
    return 0.3989422804014327 * np.exp(-0.5 * (x * x))


def normal_cdf_float32(x: Any) -> Any:
    # Below 0 it is exp(-x * x / 2) * (0.5 - t * p / q), above 0 it is 1 minus that. A third less
    # work than (1 + erf(x / sqrt(2))) / 2, and small results keep their digits.
    t = fabs(x)
    t = where(t > 14.0, 14.0, t)
    p = fma(t, 0.013898499310016632, 0.1034163236618042)
    p = fma(p, t, 0.314159631729126)
    p = fma(p, t, 0.3989419639110565)
    q = fma(t, 0.02779965102672577, 0.22893226146697998)
    q = fma(q, t, 0.8121129870414734)
    q = fma(q, t, 1.414128303527832)
    q = fma(q, t, 1.0)
    tail = _bell_float32(x) * (0.5 - quotient(t * p, q))
    return where(x < 0.0, tail, 1.0 - tail)


def normal_cdf_float64(x: Any) -> Any:
    return 0.5 * math.erfc(-0.7071067811865476 * x)


# -- division with a remainder -----------------------------------------------------------------


def remainder_float32(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    return where(r != 0.0, where((r < 0.0) != (y < 0.0), r + y, r), copysign(0.0, y))


def remainder_float64(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    return where(r != 0.0, where((r < 0.0) != (y < 0.0), r + y, r), copysign(0.0, y))


def floor_divide_float32(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    q = (x - r) / y
    q = where(r != 0.0, where((r < 0.0) != (y < 0.0), q - 1.0, q), q)
    whole = np.floor(q)
    whole = where(q - whole > 0.5, whole + 1.0, whole)
    return where(y == 0.0, x / y, where(q != 0.0, whole, copysign(0.0, x / y)))


def floor_divide_float64(x: Any, y: Any) -> Any:
    r = np.fmod(x, y)
    q = (x - r) / y
    q = where(r != 0.0, where((r < 0.0) != (y < 0.0), q - 1.0, q), q)
    whole = np.floor(q)
    whole = where(q - whole > 0.5, whole + 1.0, whole)
    return where(y == 0.0, x / y, where(q != 0.0, whole, copysign(0.0, x / y)))


# -- the logarithmic derivative of gamma -------------------------------------------------------


def digamma_float64(x: Any) -> Any:
    # Reflection to x >= 0.5, then recurrence to x >= 8, where the asymptotic series is accurate.
    low = x < 0.5
    y = where(low, 1.0 - x, x)
    total = where(low, 0.0, 0.0)
    for _ in range(8):
        near = y < 8.0
        total = total - where(near, 1.0 / y, 0.0)
        y = where(near, y + 1.0, y)
    s = 1.0 / (y * y)
    p = s * -0.08333333333333333 + 0.021092796092796094
    p = p * s + -0.007575757575757576
    p = p * s + 0.004166666666666667
    p = p * s + -0.003968253968253968
    p = p * s + 0.008333333333333333
    p = p * s + -0.08333333333333333
    right = np.log(y) - 0.5 / y + p * s + total
    part = x - np.rint(x)
    left = right - np.pi / np.tan(np.pi * part)
    pole = where(x == 0.0, copysign(inf, -x), np.nan)
    return where(low, where(part == 0.0, pole, left), right)


def digamma_float32(x: Any) -> Any:
    return as_float32(digamma_float64(as_float64(x)))


# -- the inverse of the error function ---------------------------------------------------------


def erfinv_float64(x: Any) -> Any:
    # Wichura's algorithm AS 241 for quantiles of the normal distribution.
    q = 0.5 * x
    r = 0.180625 - q * q
    p = r * 2509.0809287301226727 + 33430.575583588128105
    p = p * r + 67265.770927008700853
    p = p * r + 45921.953931549871457
    p = p * r + 13731.693765509461125
    p = p * r + 1971.5909503065514427
    p = p * r + 133.14166789178437745
    p = p * r + 3.3871328727963666080
    d = r * 5226.4952788528545610 + 28729.085735721942674
    d = d * r + 39307.895800092710610
    d = d * r + 21213.794301586595867
    d = d * r + 5394.1960214247511077
    d = d * r + 687.18700749205790830
    d = d * r + 42.313330701600911252
    d = d * r + 1.0
    middle = q * p / d
    t = np.sqrt(-np.log(0.5 * (1.0 - fabs(x))))
    r = t - 1.6
    p = r * 7.74545014278341407640e-4 + 2.27238449892691845833e-2
    p = p * r + 2.41780725177450611770e-1
    p = p * r + 1.27045825245236838258
    p = p * r + 3.64784832476320460504
    p = p * r + 5.76949722146069140550
    p = p * r + 4.63033784615654529590
    p = p * r + 1.42343711074968357734
    d = r * 1.05075007164441684324e-9 + 5.47593808499534494600e-4
    d = d * r + 1.51986665636164571966e-2
    d = d * r + 1.48103976427480074590e-1
    d = d * r + 6.89767334985100004550e-1
    d = d * r + 1.67638483018380384940
    d = d * r + 2.05319162663775882187
    d = d * r + 1.0
    near = p / d
    r = t - 5.0
    p = r * 2.01033439929228813265e-7 + 2.71155556874348757815e-5
    p = p * r + 1.24266094738807843860e-3
    p = p * r + 2.65321895265761230930e-2
    p = p * r + 2.96560571828504891230e-1
    p = p * r + 1.78482653991729133580
    p = p * r + 5.46378491116411436990
    p = p * r + 6.65790464350110377720
    d = r * 2.04426310338993978564e-15 + 1.42151175831644588870e-7
    d = d * r + 1.84631831751005468180e-5
    d = d * r + 7.86869131145613259100e-4
    d = d * r + 1.48753612908506148525e-2
    d = d * r + 1.36929880922735805310e-1
    d = d * r + 5.99832206555887937690e-1
    d = d * r + 1.0
    tail = where(t <= 5.0, near, p / d)
    tail = where(fabs(x) == 1.0, inf, tail)
    y = where(fabs(q) <= 0.425, middle, copysign(tail, x)) * 0.7071067811865476
    return where(fabs(x) <= 1.0, y, np.nan)


def erfinv_float32(x: Any) -> Any:
    return as_float32(erfinv_float64(as_float64(x)))
