"""The letters of the demos' pictures: a font of 5 by 8 dots, drawn as smooth strokes.

Comes in: a text. Goes out: line segments in units of dots, for `Picture.text`. A letter is five
bytes, one for each column, with the lowest bit on top; dots that touch become one stroke.
"""

from __future__ import annotations

import functools

Segment = tuple[float, float, float, float]

#: the letters from the space on, in the order of ASCII
_COLUMNS = bytes.fromhex(
    "0000000000 00005F0000 0007000700 147F147F14 242A7F2A12 2313086462 3649552250 0005030000"
    "001C224100 0041221C00 14083E0814 08083E0808 0050300000 0008080800 0000400000 2010080402"
    "3E4141413E 00427F4000 4261514946 2141454B31 1814127F10 2745454539 3C4A494930 0171090503"
    "3649494936 064949291E 0000240000 0056340000 0814224100 1414141414 0041221408 0201510906"
    "324979413E 7C1211127C 7F49494936 3E41414122 7F4141221C 7F49494941 7F09090901 3E4149497A"
    "7F0808087F 00417F4100 2040413F01 7F08142241 7F40404040 7F020C027F 7F0408107F 3E4141413E"
    "7F09090906 3E4151215E 7F09192946 4649494931 01017F0101 3F4040403F 1F2040201F 3F4038403F"
    "6314081463 0708700807 6151494543 007F414100 0204081020 0041417F00 0402010204 4040404040"
    "0001020400 2054545478 7F48444438 3844444428 384444487F 3854545418 00087E0902 18A4A4A47C"
    "7F08040478 00447D4000 4080847D00 007F102844 00003F4020 7C04180478 7C08040478 3844444438"
    "FC24242418 18242418FC 7C08040408 4854545424 043F444020 3C4040207C 1C2040201C 3C4030403C"
    "4428102844 1CA0A0A07C 4464544C44 0008364100 00007F0000 0041360800 0804080810"
)
HEIGHT = 7  # dots above the base line
_SPACE = 3  # the width of a space; between letters is one dot


@functools.cache
def _letter(character: str) -> tuple[tuple[Segment, ...], int]:
    """The strokes of one letter, moved to the left edge, and its width."""
    place = (ord(character) - 32) * 5
    if not 0 <= place < len(_COLUMNS):
        place = (ord("?") - 32) * 5
    columns = _COLUMNS[place : place + 5]
    dots = {(x, y) for x in range(5) for y in range(8) if columns[x] >> y & 1}
    if not dots:
        return (), _SPACE
    left = min(x for x, _ in dots)
    dots = {(x - left, y) for x, y in dots}
    strokes = []
    for x, y in sorted(dots):
        near = [(x + 1, y), (x, y + 1)]
        # A diagonal only where no corner joins the two dots already.
        near += [(x + 1, y + d) for d in (-1, 1) if not {(x + 1, y), (x, y + d)} & dots]
        ends = [dot for dot in near if dot in dots]
        strokes += [(float(x), float(y), float(a), float(b)) for a, b in ends]
        if not ends:
            strokes.append((float(x), float(y), float(x), float(y)))
    return tuple(strokes), max(x for x, _ in dots) + 1


def strokes(text: str) -> tuple[list[Segment], float]:
    """Segments (x, y, x, y) of a line of text, the first letter's top left at 0, and its width."""
    found: list[Segment] = []
    at = 0.0
    for character in text:
        letter, width = _letter(character)
        found += [(a + at, b, c + at, d) for a, b, c, d in letter]
        at += width + 1.5
    return found, max(at - 2.5, 0.0)
