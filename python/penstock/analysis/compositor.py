"""One picture of the images that the ranks of an analysis have rendered.

Direct send as a redistribution: each rank writes its image to a stream of the analysis's own, reads its band of rows of
all images, and composes that; rank 0 gets the bands by exchange(), as a rank may fail alone. What is opaque goes first,
then what one sees through, which each rank renders before the depth of what is opaque on any rank.

Images have the shape (height, width, 4), uint8, red, green, blue and alpha, multiplied by alpha; depths (height,
width), float32, 1 where there is nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..cohort import Cohort, internal_options
from ..errors import Error
from .agreement import exchange, together

TIMEOUT_S = 60.0


def nearest(colors: np.ndarray, depths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The image and depth of the pixels of least depth, the first of equals.

    colors: (n, height, width, 4); depths: (n, height, width).
    """
    front = depths.argmin(axis=0)[np.newaxis]
    return np.take_along_axis(colors, front[..., np.newaxis], 0)[0], np.take_along_axis(depths, front, 0)[0]


def over(images: Sequence[np.ndarray]) -> np.ndarray:
    """Images one over the other, the last in front."""
    below = images[0].astype(np.float32)
    for image in images[1:]:
        below *= 1 - image[..., 3:].astype(np.float32) / 255
        below += image
    return np.clip(np.rint(below), 0, 255).astype(np.uint8)


class Compositor:
    """Composes images of one size of all ranks. All calls are collective; without a cohort there is one rank.

    size: width and height. context: a penstock.Context; None: the default one. Raises what streams and cohorts raise,
    such as TimeoutError, PeerLost and WriterLost.
    """

    def __init__(self, size: tuple[int, int], cohort: Cohort | None = None, context: Any = None):
        self.width, self.height = size
        self._cohort = cohort if cohort is not None and cohort.size > 1 else None
        self._writer: Any = None
        self._reader: Any = None
        if self._cohort is not None:
            self._open(context)

    def opaque(
        self, color: np.ndarray, depth: np.ndarray, share_depth: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The nearest pixels of all ranks: the image on rank 0, empty elsewhere; and the depth on all ranks.

        share_depth: False, the same on all ranks: without the depth.
        """
        if self._cohort is None:
            return color, depth

        def band() -> tuple[np.ndarray, np.ndarray | None]:
            image, image_depth = nearest(*self._bands(color=color, depth=depth))
            return image, image_depth if share_depth else None

        return self._gathered(band)

    def layers(self, color: np.ndarray, order: Sequence[int]) -> np.ndarray:
        """The images of the ranks one over the other, in this order of ranks, from back to front; on rank 0."""
        if self._cohort is None:
            return color

        def band() -> tuple[np.ndarray, None]:
            (images,) = self._bands(color=color)
            return over([images[rank] for rank in order]), None

        return self._gathered(band)[0]

    def close(self) -> None:
        """Twice does nothing."""
        if self._reader is not None:
            with suppress(Error):
                self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def _open(self, context: Any) -> None:
        if context is None:
            from ..context import _default_context

            context = _default_context()
        cohort = self._cohort
        name = exchange(cohort, lambda: None, lambda _: f"images-{uuid.uuid4().hex}")
        options = together(cohort, lambda: internal_options(context, name))
        # A rank's first step waits for the readers of all ranks, which open below.
        self._writer = context.create(
            name, comm=cohort, timeout=TIMEOUT_S, rendezvous_readers=1, queue_steps=2, **options
        )
        try:
            self._reader = context.open(name, comm=cohort, timeout=TIMEOUT_S, **options)
        except BaseException:
            self._writer._lose()
            raise

    @property
    def _ranks(self) -> Cohort:
        """Of several ranks."""
        assert self._cohort is not None
        return self._cohort

    def _rows(self, rank: int) -> slice:
        size = self._ranks.size
        return slice(self.height * rank // size, self.height * (rank + 1) // size)

    def _bands(self, **images: np.ndarray) -> list[np.ndarray]:
        """This rank's rows of the images of all ranks, (ranks, rows, width, ...), for each of these images."""
        rank, size = self._ranks.rank, self._ranks.size
        with self._writer.step() as step:
            for name, image in images.items():
                start = (rank, *(0,) * image.ndim)
                step.put(name, image[np.newaxis], start=start, shape=(size, *image.shape), lend=True)
        with self._reader.step() as step:
            bands = [step[name].get((slice(None), self._rows(rank))) for name in images]
            step.wait()
        return bands

    def _gathered(
        self, band: Callable[[], tuple[np.ndarray, np.ndarray | None]]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """The image of the bands on rank 0, empty elsewhere, and their depth, if they have one, on all ranks."""
        image = np.zeros((0, self.width, 4), np.uint8)

        def joined(bands: list[tuple[np.ndarray, np.ndarray | None]]) -> np.ndarray | None:
            nonlocal image
            image = np.concatenate([each for each, _ in bands])
            depths = [depth for _, depth in bands if depth is not None]
            return np.concatenate(depths) if depths else None

        depth = exchange(self._cohort, band, joined)
        return image, depth
