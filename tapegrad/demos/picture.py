"""A small canvas: smooth lines, text and images, saved as PNG with nothing but NumPy and zlib.

Comes in: what `charts` draws, in pixels from the top left. Goes out: a file. Colours are triples
from 0 to 1.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .font import HEIGHT, strokes

Colour = tuple[float, float, float]
Points = Sequence[tuple[float, float]]

INK: Colour = (0.13, 0.15, 0.19)
GREY: Colour = (0.43, 0.46, 0.51)
PALE: Colour = (0.89, 0.90, 0.92)
#: colours of curves; distinct also for most people with colour blindness
CURVES: tuple[Colour, ...] = ((0.11, 0.40, 0.75), (0.87, 0.39, 0.09), (0.13, 0.55, 0.36))


class Picture:
    """A white area to draw on."""

    def __init__(self, width: int, height: int) -> None:
        self.pixels = np.ones((height, width, 3), np.float32)

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    def line(self, points: Points, colour: Colour, width: float = 1.5) -> None:
        """A line through the points, its corners and ends round."""
        ends = list(points)
        segments = [(*a, *b) for a, b in itertools.pairwise(ends)]
        self._stroke(segments, colour, width)

    def rectangle(
        self, left: float, top: float, right: float, bottom: float, colour: Colour
    ) -> None:
        """The outline of a rectangle."""
        corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        self.line(corners, colour, 1.0)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: Colour = INK,
        size: float = 16,
        align: float = 0.0,
        bold: bool = False,
    ) -> None:
        """Text with its top at y; x is its left edge for `align` 0, its right one for 1."""
        found, width = strokes(text)
        scale = size / HEIGHT
        left = x - align * width * scale
        segments = [
            (left + a * scale, y + b * scale, left + c * scale, y + d * scale)
            for a, b, c, d in found
        ]
        self._stroke(segments, colour, size * (0.17 if bold else 0.115))

    def image(self, left: int, top: int, image: Any, scale: int = 1) -> None:
        """An image of greys (height, width) or colours (height, width, 3), its pixels enlarged."""
        image = np.asarray(image, np.float32)
        if image.ndim == 2:
            image = image[..., None]
        large = image.clip(0, 1).repeat(scale, axis=0).repeat(scale, axis=1)
        self.pixels[top : top + large.shape[0], left : left + large.shape[1]] = large

    def _stroke(self, segments: Sequence[Sequence[float]], colour: Colour, width: float) -> None:
        """Paint segments as one shape, so that they do not darken where they meet."""
        if not segments:
            return
        height, full = self.pixels.shape[:2]
        radius = width / 2
        ends = np.asarray(segments, np.float64)
        reach = radius + 1
        top = max(int(ends[:, 1::2].min() - reach), 0)
        left = max(int(ends[:, ::2].min() - reach), 0)
        bottom = min(int(ends[:, 1::2].max() + reach) + 2, height)
        right = min(int(ends[:, ::2].max() + reach) + 2, full)
        if bottom <= top or right <= left:
            return
        mask = np.zeros((bottom - top, right - left), np.float32)
        for x0, y0, x1, y1 in ends - [left, top, left, top]:
            rows = slice(max(int(min(y0, y1) - reach), 0), max(int(max(y0, y1) + reach) + 2, 0))
            columns = slice(max(int(min(x0, x1) - reach), 0), max(int(max(x0, x1) + reach) + 2, 0))
            part = mask[rows, columns]
            ys = np.arange(part.shape[0])[:, None] + rows.start - y0
            xs = np.arange(part.shape[1])[None, :] + columns.start - x0
            dx, dy = x1 - x0, y1 - y0
            along = ((xs * dx + ys * dy) / max(dx * dx + dy * dy, 1e-12)).clip(0, 1)
            distance = np.hypot(xs - along * dx, ys - along * dy)
            # The coverage of a pixel is how far the edge reaches into it.
            np.maximum(part, (radius + 0.5 - distance).clip(0, 1), out=part)
        area = self.pixels[top:bottom, left:right]
        area += mask[..., None] * (np.asarray(colour, np.float32) - area)

    def save(self, path: Path) -> Path:
        """Write a PNG file."""
        pixels = (self.pixels.clip(0, 1) * 255 + 0.5).astype(np.uint8)
        height, width = pixels.shape[:2]
        rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        path.write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + _chunk(b"IHDR", header)
            + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
            + _chunk(b"IEND", b"")
        )
        return path


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
