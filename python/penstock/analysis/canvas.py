"""What scenes draw with: windows of VTK off screen, and what is put in them. Importing this module imports VTK.

Images go from the lowest row to the highest, as VTK has them; the module compositor says what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import vtkmodules.vtkRenderingCore as core
import vtkmodules.vtkRenderingFreeType
import vtkmodules.vtkRenderingOpenGL2
import vtkmodules.vtkRenderingVolumeOpenGL2  # noqa: F401
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkFloatArray, vtkLookupTable, vtkUnsignedCharArray, vtkVersion
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPiecewiseFunction, vtkPointSet, vtkPolyData
from vtkmodules.vtkCommonExecutionModel import vtkTrivialProducer
from vtkmodules.vtkFiltersCore import vtkAppendFilter, vtkAppendPolyData
from vtkmodules.vtkFiltersGeneral import vtkVertexGlyphFilter
from vtkmodules.vtkFiltersGeometry import vtkGeometryFilter
from vtkmodules.vtkFiltersModeling import vtkOutlineFilter
from vtkmodules.vtkIOImage import vtkPNGWriter
from vtkmodules.vtkRenderingAnnotation import vtkAxesActor
from vtkmodules.vtkRenderingOpenGL2 import vtkOpenGLSphereMapper
from vtkmodules.vtkRenderingVolumeOpenGL2 import vtkOpenGLGPUVolumeRayCastMapper

from ..errors import Unsupported
from ..render import BACKGROUND_HIGH, BACKGROUND_LOW, COLORS, _off_screen_window, _Scene
from .parts import CELL, POINT, association, copy_of, ghosts, magnitude, owned, run, set_array, values
from .parts import with_points as fields_at_points
from .view import View
from .vtk import GHOSTS

_COLOR = "penstock:color"
_OPACITY = ((0, 0), (0.2, 0.02), (0.5, 0.25), (1, 0.95))  # of volumes, over the range of values
MAX_WHOLE = 1e9  # below it, whole numbers are written with all digits
_AXES = (("X", (0.76, 0.29, 0.20)), ("Y", (0.35, 0.55, 0.30)), ("Z", (0.13, 0.24, 0.48)))


@dataclass(frozen=True)
class Look:
    """How something is drawn. limits: of the values that the colours stand for; None: all in `plain`. lit: shaded."""

    limits: tuple[float, float] | None = None
    plain: tuple[float, ...] = (0.7, 0.7, 0.7)
    opacity: float = 1.0
    lit: bool = True


class Canvas:
    """A window in which a rank draws its part of a picture. Unsupported where VTK cannot draw off screen."""

    def __init__(self, size: tuple[int, int]):
        self.window = _window(size)
        self.renderer = core.vtkRenderer()
        self.renderer.SetBackground(0, 0, 0)
        self.renderer.SetBackgroundAlpha(0)
        self.renderer.PreserveDepthBufferOn()  # draw() sets it
        self.renderer.SetMaximumNumberOfPeels(16)
        self.renderer.SetOcclusionRatio(0)
        self.renderer.AutomaticLightCreationOff()
        core.vtkLightKit().AddLightsToRenderer(self.renderer)
        self.window.AddRenderer(self.renderer)

    def draw(self, props: Sequence[Any], view: View, before: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The image and depth of what is opaque; or, where `before` is a depth, of what one sees through before it."""
        width, height = self.window.GetSize()
        corners = 0, 0, width - 1, height - 1
        for prop in props:
            self.renderer.AddViewProp(prop)
        kinds = {prop.IsA("vtkVolume") for prop in props}
        self.renderer.SetUseDepthPeeling(before is not None and False in kinds)
        self.renderer.SetUseDepthPeelingForVolumes(len(kinds) == 2)
        view.aim(self.renderer.GetActiveCamera())
        far = np.ones(width * height, np.float32) if before is None else np.ascontiguousarray(before).ravel()
        self.window.MakeCurrent()  # SetZbufferData() takes whichever window is current, and spoils its state
        self.window.SetZbufferData(*corners, numpy_to_vtk(far))
        self.window.Render()
        self.renderer.RemoveAllViewProps()
        depth = vtkFloatArray()
        self.window.GetZbufferData(*corners, depth)
        return _pixels(self.window), vtk_to_numpy(depth).reshape(height, width).copy()


def _window(size: tuple[int, int]) -> Any:
    window = _off_screen_window()
    window.SetMultiSamples(0)
    window.SetAlphaBitPlanes(1)
    window.SetSize(*size)
    window.Initialize()
    if not window.GetInitialized():
        raise Unsupported(
            f"VTK {vtkVersion.GetVTKVersion()} cannot draw: its {window.GetClassName()} gets no OpenGL 3.2. Without a "
            "display VTK needs EGL or OSMesa: install libegl1 or libosmesa6, and unset VTK_DEFAULT_OPENGL_WINDOW"
        )
    window.Render()
    return window


def _pixels(window: Any) -> np.ndarray:
    width, height = window.GetSize()
    found = vtkUnsignedCharArray()
    window.GetRGBACharPixelData(0, 0, width - 1, height - 1, 0, found)
    pixels: np.ndarray = vtk_to_numpy(found).reshape(height, width, 4).copy()
    return pixels


# ------------------------------------------------------------------------------------------------------------- props


def surface(part: Any, whole: bool = True) -> vtkPolyData | None:
    """The outside of the part's own cells; whole: with the faces between them and ghosts. None: there is none."""
    own = owned(part)
    if own is None or isinstance(own, vtkPolyData):
        return own
    source = vtkTrivialProducer()
    source.SetOutput(own)
    if not whole and hasattr(own, "GetExtent"):
        source.SetWholeExtent(part.GetExtent())  # vtkGeometryFilter leaves out what lies inside
    elif not whole and (marks := ghosts(part, CELL)) is not None:
        part = copy_of(part)
        part.GetPointData().RemoveArray(GHOSTS)
        set_array(part, CELL, GHOSTS, marks.astype(np.uint8))
        source.SetOutput(part)
    faces = vtkGeometryFilter()
    faces.SetInputConnection(source.GetOutputPort())
    faces.Update()
    return faces.GetOutput() if faces.GetOutput().GetNumberOfCells() else None


def points(part: Any, color: str | None) -> vtkPolyData | None:
    """The points of the part's own cells, with that field at them. None: there are none."""
    own = owned(fields_at_points(part, color) if color is not None else part)
    if own is None:
        return None
    return run(vtkVertexGlyphFilter(), own if isinstance(own, vtkPointSet) else run(vtkAppendFilter(), own))


def actors(pieces: Iterable[vtkPolyData], color: str | None, look: Look, radius: float | None = None) -> list[Any]:
    """One for the pieces that have the field at points, one for those that have it in cells, one for the others.

    radius: of the balls as which points are drawn.
    """
    groups: dict[int | None, vtkAppendPolyData] = {}
    for piece in pieces:
        place = association(piece, color) if color is not None else None
        bare = vtkPolyData()  # without data but the normals and the colours' values
        bare.CopyStructure(piece)
        bare.GetPointData().SetNormals(piece.GetPointData().GetNormals())
        if place is not None and color is not None:
            set_array(bare, place, _COLOR, magnitude(values(piece, color)))
        groups.setdefault(place, vtkAppendPolyData()).AddInputData(bare)
    found = []
    for place, append in groups.items():
        append.Update()
        found.append(_actor(append.GetOutput(), place, look, radius))
    return found


def _actor(data: vtkPolyData, place: int | None, look: Look, radius: float | None = None, line: float = 2) -> Any:
    mapper = core.vtkPolyDataMapper() if radius is None else vtkOpenGLSphereMapper()
    if radius is not None:
        mapper.SetRadius(radius)
    mapper.SetInputData(data)
    mapper.SetScalarVisibility(place is not None and look.limits is not None)
    if mapper.GetScalarVisibility():
        mapper.SetScalarMode(3 if place == POINT else 4)  # an array of points, of cells
        mapper.SelectColorArray(_COLOR)
        mapper.SetLookupTable(_lookup_table(look.limits or (0.0, 1.0)))
        mapper.UseLookupTableScalarRangeOn()
        mapper.SetInterpolateScalarsBeforeMapping(place == POINT and radius is None)
    actor = core.vtkActor()
    actor.SetMapper(mapper)
    of = actor.GetProperty()
    of.SetColor(*look.plain)
    of.SetOpacity(look.opacity)
    of.SetLighting(look.lit)
    of.SetAmbient(0.22)
    of.SetDiffuse(0.78)
    of.SetSpecular(0.2 if data.GetPointData().GetNormals() is not None or radius is not None else 0.0)
    of.SetSpecularPower(28)
    of.SetLineWidth(line)
    of.SetPointSize(4)
    return actor


def palette() -> np.ndarray:
    """256 colours, (256, 3), from 0 to 1."""
    at, *channels = np.array(COLORS).T
    return np.stack([np.interp(np.linspace(0, 1, 256), at, channel) for channel in channels], axis=1)


def _lookup_table(limits: tuple[float, float]) -> vtkLookupTable:
    table = vtkLookupTable()
    table.SetNumberOfTableValues(256)
    for n, rgb in enumerate(palette()):
        table.SetTableValue(n, *rgb, 1.0)
    table.SetTableRange(*limits)
    table.SetNanColor(0.6, 0.6, 0.6, 1.0)
    return table


def volume(part: vtkImageData, field: str, look: Look, thickness: float, step: float) -> Any:
    """The part, seen through. thickness: at which the largest value hides what lies behind; step: along rays."""
    image = vtkImageData()
    image.CopyStructure(part)
    set_array(image, POINT, _COLOR, magnitude(values(part, field)).astype(np.float32))
    image.GetPointData().SetActiveScalars(_COLOR)
    low, high = look.limits or (0.0, 1.0)
    colors, opacity = core.vtkColorTransferFunction(), vtkPiecewiseFunction()
    for at, *rgb in COLORS:
        colors.AddRGBPoint(low + at * (high - low), *rgb)
    for at, alpha in _OPACITY:
        opacity.AddPoint(low + at * (high - low), alpha * look.opacity)
    mapper = vtkOpenGLGPUVolumeRayCastMapper()
    mapper.SetInputData(image)
    mapper.AutoAdjustSampleDistancesOff()
    mapper.SetSampleDistance(step)
    mapper.UseJitteringOff()
    result = core.vtkVolume()
    result.SetMapper(mapper)
    of = result.GetProperty()
    of.SetColor(colors)
    of.SetScalarOpacity(opacity)
    of.SetScalarOpacityUnitDistance(thickness)
    of.SetInterpolationTypeToLinear()
    of.ShadeOff()
    return result


def outline(bounds: np.ndarray) -> Any:
    """Of the box (low, high)."""
    box = vtkImageData()
    box.SetDimensions(2, 2, 2)
    box.SetOrigin(*bounds[0])
    box.SetSpacing(*(bounds[1] - bounds[0]))
    return _actor(run(vtkOutlineFilter(), box), None, Look(plain=(0.42, 0.47, 0.54), lit=False), line=1.6)


# ------------------------------------------------------------------------------------------------------- annotations


def background(size: tuple[int, int]) -> np.ndarray:
    """An image, lighter towards the top."""
    rise = np.linspace(0, 1, size[1])[:, np.newaxis]
    rows = np.full((size[1], 1, 4), 255, np.uint8)
    rows[:, 0, :3] = np.rint(255 * (np.array(BACKGROUND_LOW) * (1 - rise) + np.array(BACKGROUND_HIGH) * rise))
    return np.broadcast_to(rows, (size[1], size[0], 4))


@dataclass(frozen=True)
class Bar:
    """A bar of colours from a low to a high value. whole: there are only whole numbers."""

    title: str
    low: float
    high: float
    whole: bool = False

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """At most so many: the part of the way from low to high, and the value as text."""
        values = np.linspace(self.low, self.high, count)
        inside = np.ceil(self.low), np.floor(self.high)
        whole = self.whole and inside[0] <= inside[1]
        if whole:
            values = np.unique(np.rint(np.linspace(*inside, count))) + 0.0  # no -0
        short = whole and np.abs(values).max() < MAX_WHOLE
        words = [f"{value:.0f}" for value in values] if short else tick_labels(values.tolist())
        return list(zip(((values - self.low) / (self.high - self.low)).tolist(), words, strict=True))


class Annotator:
    """A window that adds colour bars, a label and axes to a picture, and smooths its edges."""

    def __init__(self, size: tuple[int, int]):
        self.width, self.height = size
        self.window = _window(size)
        self.window.SetNumberOfLayers(2)
        self.texture = core.vtkTexture()
        self.texture.InterpolateOff()
        self.renderer = core.vtkRenderer()
        self.renderer.UseFXAAOn()
        self.renderer.TexturedBackgroundOn()
        self.renderer.SetBackgroundTexture(self.texture)
        self.axes = core.vtkRenderer()
        self.axes.SetLayer(1)
        self.axes.SetViewport(0, 0, 0.16 * min(self.height / self.width, 1), 0.16 * min(self.width / self.height, 1))
        self.cross = self._cross()
        self.axes.AddActor(self.cross)
        self.window.AddRenderer(self.renderer)
        self.window.AddRenderer(self.axes)

    def annotate(self, picture: np.ndarray, view: View | None, bars: Sequence[Bar], label: str) -> np.ndarray:
        """An array (height, width, 3) of the opaque image, from the highest row to the lowest.

        view: for the axes; None: without them.
        """
        picture = picture[..., :3].copy()
        texts = [self._text(label, 0.035, 0.955, 30)] if label else []
        for number, bar in enumerate(bars):
            texts += self._bar(picture, bar, number, len(bars))
        self.texture.SetInputData(_image(picture))
        for text in texts:
            self.renderer.AddViewProp(text)
        self.axes.SetDraw(view is not None)
        if view is not None:
            camera = self.axes.GetActiveCamera()
            camera.ParallelProjectionOn()
            camera.SetFocalPoint(0, 0, 0)
            camera.SetPosition(*(-10 * view.direction))
            camera.SetViewUp(*view.up)
            camera.SetParallelScale(1.7)
            camera.SetClippingRange(1, 20)
            for name, along in zip("XYZ", abs(view.direction), strict=True):  # no label of an axis seen from its tip
                getattr(self.cross, f"Set{name}AxisLabelText")(name.lower() if along < 0.99 else "")
        self.window.Render()
        self.renderer.RemoveAllViewProps()
        return np.ascontiguousarray(_pixels(self.window)[::-1, :, :3])

    def _cross(self) -> vtkAxesActor:
        axes = vtkAxesActor()
        axes.SetShaftTypeToCylinder()
        axes.SetNormalizedLabelPosition(1.25, 1.25, 1.25)
        for name, color in _AXES:
            getattr(axes, f"Get{name}AxisShaftProperty")().SetColor(*color)
            getattr(axes, f"Get{name}AxisTipProperty")().SetColor(*color)
            caption = getattr(axes, f"Get{name}AxisCaptionActor2D")()
            caption.GetTextActor().SetTextScaleModeToNone()
            _Scene._dress(caption.GetCaptionTextProperty(), max(round(self.height / 45), 9))
        return axes

    def _bar(self, picture: np.ndarray, bar: Bar, number: int, count: int) -> list[Any]:
        """Paints the bar into the picture; its title and numbers."""
        room = 0.84 / count
        bottom, tall = (0.3, 0.44) if count == 1 else (0.1 + room * (count - 1 - number), room - 0.12)
        rows = np.arange(round(bottom * self.height), round((bottom + tall) * self.height))
        left, wide = round(0.89 * self.width), max(round(self.width / 50), 4)
        shades = np.rint(255 * palette()[np.arange(len(rows)) * 256 // max(len(rows), 1)])
        picture[rows, left : left + wide] = shades[:, np.newaxis]
        title, above = bar.title if len(bar.title) < 25 else f"{bar.title[:23]}…", bottom + tall + 0.035
        long = len(title) > 7
        texts = [self._text(title, 0.985 if long else left / self.width, above, 38, right=long)]
        for part, words in bar.ticks(5 if count < 3 else 3):
            texts.append(self._text(words, (left + wide + 6) / self.width, bottom + part * tall, 48))
        return texts

    def _text(self, words: str, x: float, y: float, part: float, right: bool = False) -> Any:
        """At a place in the picture from 0 to 1, its middle at y. part: of the height, where there is room."""
        text = core.vtkTextActor()
        text.SetInput(words)
        text.SetPosition(round(x * self.width), round(y * self.height))
        of = text.GetTextProperty()
        room = self.width * (x if right else 1 - x)
        _Scene._dress(of, max(round(min(self.height / part, 1.8 * room / max(len(words), 1))), 9))
        of.SetVerticalJustificationToCentered()
        if right:
            of.SetJustificationToRight()
        return text


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """With as many digits as tell them apart; ticks rise."""
    size = int(np.floor(np.log10(max(abs(ticks[0]), abs(ticks[-1])))))
    places = 2 - int(np.floor(np.log10(ticks[-1] - ticks[0] or 1)))
    if -4 < size < 6 and places <= 6:
        return [f"{round(tick, places) + 0.0:.{max(places, 0)}f}" for tick in ticks]
    return [f"{tick:.{max(places + size, 1)}e}" for tick in ticks]


def _image(picture: np.ndarray) -> vtkImageData:
    image = vtkImageData()
    image.SetDimensions(picture.shape[1], picture.shape[0], 1)
    image.GetPointData().SetScalars(numpy_to_vtk(np.ascontiguousarray(picture).reshape(-1, 3)))
    return image


def png(picture: np.ndarray) -> bytes:
    """The file's bytes of an array (height, width, 3), from the highest row to the lowest."""
    writer = vtkPNGWriter()
    writer.WriteToMemoryOn()
    writer.SetCompressionLevel(4)
    writer.SetInputData(_image(picture[::-1]))
    writer.Write()
    return bytes(vtk_to_numpy(writer.GetResult()).tobytes())
