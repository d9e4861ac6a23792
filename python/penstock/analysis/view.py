"""The camera of a scene: where it is so that the data fits in the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .records import Camera
from .visibility import visibility_order

ANGLE = 24.0
_MARGIN = 0.12

Boxes = Sequence[tuple[Sequence[float], Sequence[float]]]


@dataclass(frozen=True)
class View:
    """A camera. scale: half the height of the view, in a parallel projection; None: perspective.

    angle: of the view from bottom to top, in degrees; clipping: distances from the eye; shift: of the data's centre
    from the picture's, in halves of its sides.
    """

    eye: np.ndarray
    center: np.ndarray
    up: np.ndarray
    clipping: tuple[float, float]
    shift: tuple[float, float]
    angle: float = ANGLE
    scale: float | None = None

    @property
    def direction(self) -> np.ndarray:
        """Away from the eye, of length 1."""
        away: np.ndarray = self.center - self.eye
        return away / float(np.linalg.norm(away))

    def aim(self, camera: Any) -> None:
        """Sets a vtkCamera."""
        camera.SetPosition(*self.eye)
        camera.SetFocalPoint(*self.center)
        camera.SetViewUp(*self.up)
        camera.SetViewAngle(self.angle)
        camera.SetParallelProjection(self.scale is not None)
        camera.SetParallelScale(self.scale or 1.0)
        camera.SetClippingRange(*self.clipping)
        camera.SetWindowCenter(-self.shift[0], -self.shift[1])

    def back_to_front(self, boxes: Boxes) -> list[int]:
        """The numbers of the boxes (low, high), by planes between them; where there are none, by their centres."""
        eye = self.eye if self.scale is None else None
        try:
            return visibility_order(boxes, self.direction.tolist(), None if eye is None else eye.tolist())
        except InvalidArgument:
            middle = np.array([np.add(low, high) / 2 for low, high in boxes])
            away = middle @ self.direction if eye is None else np.linalg.norm(middle - eye, axis=1)
            order: list[int] = np.argsort(-away, kind="stable").tolist()
            return order


def view_of(bounds: np.ndarray, camera: Camera, size: tuple[int, int], bars: bool, label: bool) -> View:
    """The view in which the box (low, high) is as large as it fits beside bars and label.

    A flat mesh is seen from above, without perspective, unless the direction is another than the default.
    """
    low, high = bounds
    center, diagonal = (low + high) / 2, float(np.linalg.norm(high - low))
    radius = diagonal / 2 or 1.0
    flat = [axis for axis in range(3) if high[axis] - low[axis] <= 1e-9 * diagonal]
    above = bool(flat) and camera.direction == Camera().direction
    direction, up = np.array(camera.direction), np.array(camera.up)
    if above:
        direction = np.eye(3)[flat[-1]] * (-1 if flat[-1] == 1 else 1)
        up = np.eye(3)[1 if flat[-1] == 2 else 2]
    right, up, direction = _axes(direction, up)

    frame = np.array([[_MARGIN - 1, 1 - _MARGIN]] * 2)  # left and right, bottom and top
    frame[:, 1] -= 0.24 * bars, 0.08 * label
    frame[1, 0] += 0.18 * (np.max(abs(direction)) > 0.99)  # the data's corner would be where the axes are
    shift = tuple(frame.mean(axis=1).tolist())
    wide, tall = (frame[:, 1] - frame[:, 0]) / 2 * (size[0] / size[1], 1)
    corners = np.array(np.meshgrid(*(bounds - center).T)).reshape(3, -1)
    x, y, near = np.array([right, up, direction]) @ corners
    # A long thing seen from its end is not seen from so near that depths lose their digits.
    needed = np.maximum(np.maximum(abs(x) / wide, abs(y) / tall), 0.05 * radius)
    if above:
        scale = float(needed.max()) / camera.zoom
        return View(center + 3 * radius * direction, center, up, (radius, 5 * radius), shift, scale=scale)
    tangent = np.tan(np.radians(ANGLE / 2))
    distance = float(np.max(needed / tangent + near))
    first, last = distance - near.max(), distance - near.min()
    clipping = max(first - radius / 15, first / 2), last + radius / 15  # there are balls around points
    angle = 2 * float(np.degrees(np.arctan(tangent / camera.zoom)))
    return View(center + distance * direction, center, up, clipping, shift, angle)


def _axes(direction: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right, up and towards the eye, of length 1."""
    direction = direction / np.linalg.norm(direction)
    if np.linalg.norm(np.cross(up, direction)) < 1e-6 * np.linalg.norm(up):
        up = np.eye(3)[np.argmin(abs(direction))]
    right = np.cross(up, direction)
    right /= np.linalg.norm(right)
    return right, np.cross(direction, right), direction
