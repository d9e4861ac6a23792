"""Pictures of arrays for analysis scripts: isosurface to a PNG file, PNG files to an animated GIF.

isosurface() needs VTK (pip install vtk), animate() needs Pillow. Rendering is off screen: no display, no window; VTK
uses EGL or OSMesa, whichever the machine has, and a GPU where there is one. Call from one thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from PIL import Image

BACKGROUND_LOW = (0.86, 0.89, 0.93)
BACKGROUND_HIGH = (0.99, 0.99, 1.0)
INK = (0.16, 0.19, 0.24)
# Dark blue over teal and sand to brick: ordered in lightness at both ends, readable with colour-blindness.
COLORS = ((0.0, 0.13, 0.24, 0.48), (0.3, 0.16, 0.52, 0.62), (0.55, 0.64, 0.80, 0.66), (0.78, 0.95, 0.79, 0.49),
          (1.0, 0.76, 0.29, 0.20))  # fmt: skip


def isosurface(
    array: ArrayLike,
    value: float,
    path: str | os.PathLike[str],
    *,
    spacing: Sequence[float] = (1.0, 1.0, 1.0),
    color_by: ArrayLike | None = None,
    color_range: tuple[float, float] | None = None,
    color_label: str = "",
    label: str = "",
    size: tuple[int, int] = (800, 720),
) -> Path:
    """Renders the surface array == value to the PNG file `path` and returns the path.

    array: 3-D, indexed [x, y, z]; spacing: distance between cells in x, y, z. color_by: an array of the same shape
    whose values colour the surface (None: distance from the centre), over color_range (None: its range on the surface),
    with color_label at the colour bar. label: shown at the top. size: width and height in pixels. A value that the
    array does not reach gives a picture of the empty box. ValueError when the shapes do not fit; OSError when the
    picture cannot be written.
    """
    array = np.asarray(array)
    if array.ndim != 3 or min(array.shape) < 2:
        raise ValueError(f"expected a 3-D array of at least 2 cells a side, got shape {array.shape}")
    if color_by is not None and np.shape(color_by) != array.shape:
        raise ValueError(f"color_by has shape {np.shape(color_by)}, the array {array.shape}")
    _scene(tuple(size)).render(array, value, os.fspath(path), spacing, color_by, color_range, color_label, label)
    return Path(path)


def animate(
    pictures: Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    width: int = 480,
    frame_ms: int = 100,
    max_bytes: int = 2_000_000,
) -> Path:
    """Joins picture files to an animated GIF that repeats for ever, and returns its path.

    Larger than max_bytes is tried again with fewer colours, then with a smaller width. ValueError without pictures.
    """
    from PIL import Image

    files = [os.fspath(picture) for picture in pictures]
    if not files:
        raise ValueError("no pictures to animate")
    for scale, colors in ((1.0, 255), (1.0, 128), (0.75, 96), (0.5, 64), (0.35, 32)):
        frames = []
        for file in files:
            with Image.open(file) as image:
                wide = max(1, int(width * scale))
                frames.append(image.convert("RGB").resize((wide, max(1, image.height * wide // image.width))))
        # One palette for all frames, so that what does not move compresses away.
        palette = _common_palette(frames, colors)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=frame_ms, loop=0, optimize=False)
        if os.path.getsize(path) <= max_bytes:
            break
    return Path(path)


def _common_palette(frames: list[Image.Image], colors: int) -> Image.Image:
    from PIL import Image

    sample = frames[:: max(1, len(frames) // 6)]
    strip = Image.new("RGB", (frames[0].width, sum(frame.height for frame in sample)))
    top = 0
    for frame in sample:
        strip.paste(frame, (0, top))
        top += frame.height
    # A share for what fills most of the picture (the background's shades), the rest for the colours of the small parts.
    common = colors // 5
    shares = ((common, Image.Quantize.MEDIANCUT), (colors - common, Image.Quantize.MAXCOVERAGE))
    entries: list[int] = []
    for share, method in shares:
        entries += (strip.quantize(share, method=method).getpalette() or [])[: 3 * share]
    palette = Image.new("P", (1, 1))
    palette.putpalette(entries)
    return palette


@functools.lru_cache(maxsize=4)
def _scene(size: tuple[int, int]) -> _Scene:
    # A render window costs more than a picture: one for each size is kept.
    return _Scene(size)


class _Scene:
    """The pipeline array -> contour -> smooth normals -> coloured surface, in a lit box, on one render window."""

    def __init__(self, size: tuple[int, int]):
        import vtkmodules.vtkRenderingFreeType
        import vtkmodules.vtkRenderingOpenGL2  # noqa: F401
        from vtkmodules.vtkRenderingCore import vtkRenderer

        self.image: Any = None
        self.renderer = vtkRenderer()
        self.renderer.SetBackground(*BACKGROUND_LOW)
        self.renderer.SetBackground2(*BACKGROUND_HIGH)
        self.renderer.GradientBackgroundOn()
        self.window = _off_screen_window()
        self.window.SetMultiSamples(0)  # FXAA is kinder to software rendering
        self.window.SetSize(*size)
        self.window.AddRenderer(self.renderer)
        self.renderer.UseFXAAOn()
        self._add_surface()
        self._add_box()
        self._add_texts(size)
        self._add_lights()

    def _add_surface(self) -> None:
        from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D
        from vtkmodules.vtkRenderingCore import vtkActor, vtkColorTransferFunction, vtkPolyDataMapper

        self.contour = vtkFlyingEdges3D()
        self.contour.ComputeNormalsOn()  # from the field's gradient: smooth shading
        self.contour.InterpolateAttributesOn()
        self.colors = vtkColorTransferFunction()
        self.mapper = vtkPolyDataMapper()
        self.mapper.SetInputConnection(self.contour.GetOutputPort())
        self.mapper.SetLookupTable(self.colors)
        self.mapper.SetScalarModeToUsePointFieldData()
        self.mapper.SelectColorArray("color")
        self.mapper.InterpolateScalarsBeforeMappingOff()
        self.surface = vtkActor()
        self.surface.SetMapper(self.mapper)
        look = self.surface.GetProperty()
        look.SetInterpolationToPhong()
        look.SetAmbient(0.22)
        look.SetDiffuse(0.78)
        look.SetSpecular(0.25)
        look.SetSpecularPower(28)
        self.renderer.AddActor(self.surface)

    def _add_box(self) -> None:
        from vtkmodules.vtkFiltersModeling import vtkOutlineFilter
        from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper

        self.outline = vtkOutlineFilter()
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(self.outline.GetOutputPort())
        mapper.ScalarVisibilityOff()
        actor = vtkActor()
        actor.SetMapper(mapper)
        actor.GetProperty().SetColor(0.42, 0.47, 0.54)
        actor.GetProperty().SetLineWidth(1.6)
        actor.GetProperty().LightingOff()
        self.renderer.AddActor(actor)

    def _add_texts(self, size: tuple[int, int]) -> None:
        from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
        from vtkmodules.vtkRenderingCore import vtkTextActor

        self.label = vtkTextActor()
        self._dress(self.label.GetTextProperty(), round(size[1] / 30))
        self.label.SetPosition(round(size[0] * 0.035), round(size[1] * 0.93))
        self.renderer.AddViewProp(self.label)
        self.bar = vtkScalarBarActor()
        self.bar.SetLookupTable(self.colors)
        self.bar.UnconstrainedFontSizeOn()
        self.bar.SetNumberOfLabels(4)
        self.bar.SetLabelFormat("{:.2f}" if _new_formats() else "%.2f")
        self.bar.SetPosition(0.885, 0.28)
        self.bar.SetWidth(0.08)
        self.bar.SetHeight(0.44)
        self.bar.SetBarRatio(0.24)
        self.bar.SetVerticalTitleSeparation(round(size[1] / 70))
        self._dress(self.bar.GetLabelTextProperty(), round(size[1] / 46))
        self._dress(self.bar.GetTitleTextProperty(), round(size[1] / 36))
        self.renderer.AddViewProp(self.bar)

    @staticmethod
    def _dress(text: Any, pixels: int) -> None:
        text.SetColor(*INK)
        text.SetFontFamilyToArial()
        text.SetFontSize(pixels)
        text.BoldOff()
        text.ItalicOff()
        text.ShadowOff()

    def _add_lights(self) -> None:
        from vtkmodules.vtkRenderingCore import vtkLight

        self.renderer.AutomaticLightCreationOff()
        for position, intensity in (((1.2, 1.6, 2.0), 0.85), ((-2.0, 0.4, 1.0), 0.35), ((0.2, -1.5, 0.4), 0.18)):
            light = vtkLight()
            light.SetLightTypeToCameraLight()
            light.SetPosition(*position)
            light.SetFocalPoint(0, 0, 0)
            light.SetIntensity(intensity)
            self.renderer.AddLight(light)

    def render(
        self,
        array: np.ndarray,
        value: float,
        path: str,
        spacing: Sequence[float],
        color_by: ArrayLike | None,
        color_range: tuple[float, float] | None,
        color_label: str,
        label: str,
    ) -> None:
        self._load(array, spacing, color_by)
        self.contour.SetInputData(self.image)
        self.contour.SetInputArrayToProcess(0, 0, 0, 0, "value")
        self.contour.SetValue(0, float(value))
        self.contour.Update()
        self.outline.SetInputData(self.image)
        low, high = color_range or self._range_on_surface()
        self._paint(low, high)
        self.bar.SetTitle(color_label)
        self.bar.SetVisibility(bool(color_label))
        self.label.SetInput(label)
        self._aim(array.shape, spacing)
        self.window.Render()
        self._save(path)

    def _load(self, array: np.ndarray, spacing: Sequence[float], color_by: ArrayLike | None) -> None:
        from vtkmodules.util.numpy_support import numpy_to_vtk
        from vtkmodules.vtkCommonDataModel import vtkImageData

        if color_by is None:
            axes = [np.linspace(-1.0, 1.0, n) ** 2 for n in array.shape]
            color_by = np.sqrt(axes[0][:, None, None] + axes[1][:, None] + axes[2])
        self.image = vtkImageData()
        self.image.SetDimensions(*array.shape)
        self.image.SetSpacing(*spacing)
        for name, data in (("value", array), ("color", color_by)):
            # VTK counts x fastest. Floats: half the memory, and more than a picture shows.
            points = numpy_to_vtk(np.asarray(data, dtype=np.float32).ravel(order="F"))
            points.SetName(name)
            self.image.GetPointData().AddArray(points)
        self.image.GetPointData().SetActiveScalars("value")

    def _range_on_surface(self) -> tuple[float, float]:
        colors = self.contour.GetOutput().GetPointData().GetArray("color")
        low, high = colors.GetRange() if colors is not None and colors.GetNumberOfTuples() else (0.0, 1.0)
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def _paint(self, low: float, high: float) -> None:
        self.colors.RemoveAllPoints()
        for at, *rgb in COLORS:
            self.colors.AddRGBPoint(low + at * (high - low), *rgb)
        self.mapper.SetScalarRange(low, high)

    def _aim(self, shape: tuple[int, ...], spacing: Sequence[float]) -> None:
        extent = [(n - 1) * d for n, d in zip(shape, spacing, strict=True)]
        center = [e / 2 for e in extent]
        radius = float(np.linalg.norm(extent)) / 2
        direction = np.array([1.0, -1.75, 0.95])
        camera = self.renderer.GetActiveCamera()
        camera.SetViewAngle(24)
        camera.SetViewUp(0, 0, 1)
        distance = radius / np.sin(np.radians(12)) * 0.98
        camera.SetPosition(*(center + direction / np.linalg.norm(direction) * distance))
        camera.SetFocalPoint(*center)
        camera.SetWindowCenter(0.06 if self.bar.GetVisibility() else 0.0, -0.02)
        self.renderer.ResetCameraClippingRange()

    def _save(self, path: str) -> None:
        from vtkmodules.vtkIOImage import vtkPNGWriter
        from vtkmodules.vtkRenderingCore import vtkWindowToImageFilter

        grab = vtkWindowToImageFilter()
        grab.SetInput(self.window)
        grab.SetInputBufferTypeToRGB()
        grab.ReadFrontBufferOff()
        grab.ShouldRerenderOff()
        writer = vtkPNGWriter()
        writer.SetFileName(path)
        writer.SetCompressionLevel(4)
        writer.SetInputConnection(grab.GetOutputPort())
        writer.Write()
        if writer.GetErrorCode():
            raise OSError(f"{path}: the picture cannot be written")


def _off_screen_window() -> Any:
    """A window of the kind that VTK chooses; without a display it first warns about X, which says nothing here."""
    from vtkmodules.vtkCommonCore import vtkLogger
    from vtkmodules.vtkRenderingCore import vtkRenderWindow

    verbosity = vtkLogger.GetCurrentVerbosityCutoff()
    vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_ERROR)
    try:
        window = vtkRenderWindow()
    finally:
        vtkLogger.SetStderrVerbosity(verbosity)
    window.OffScreenRenderingOn()
    return window


def _new_formats() -> bool:
    # VTK 9.6 turned printf formats into std::format ones.
    from vtkmodules.vtkCommonCore import vtkVersion

    version: tuple[int, int] = (vtkVersion.GetVTKMajorVersion(), vtkVersion.GetVTKMinorVersion())
    return version >= (9, 6)
