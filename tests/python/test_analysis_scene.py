"""Pictures of scenes: what is in them, and that any number of ranks gives the same."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest
from penstock.analysis import ElementBlock, Field, ParticleMesh, UniformMesh, UnstructuredMesh, partition
from penstock.analysis.expressions import Values
from penstock.analysis.pipeline import Pipeline
from penstock.analysis.records import Camera
from penstock.errors import InvalidArgument, NotFound

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
from penstock.analysis import to_vtk
from penstock.analysis.agreement import together
from penstock.analysis.canvas import Annotator, Bar, surface, tick_labels
from penstock.analysis.scene import SceneRenderer, ball_radius
from penstock.analysis.view import view_of
from vtkmodules.vtkFiltersCore import vtkAppendFilter

N = 17
VALUES = Values(3, 0.5, 3)
SIZE = (240, 216)


def block(rank, size, layers=1):
    """A rank's part of a cube from -1 to 1 with fields, and the box of its own cells."""
    cells, steps = (N - 1,) * 3, np.linspace(-1, 1, N)
    own = partition.boxes(cells, size)[rank]
    part = own.grown(layers, cells)
    here = tuple(slice(low, high + 1) for low, high in zip(part.low, part.high, strict=True))
    z, y, x = np.meshgrid(steps, steps, steps, indexing="ij")
    marks = np.ones(part.shape, np.uint8)
    inner = zip(own.low, own.high, part.low, strict=True)
    marks[tuple(slice(low - first, high - first) for low, high, first in inner)] = 0
    fields = {
        "blob": Field("node", np.exp(-2 * (x**2 + y**2 + z**2) + 0.3 * np.sin(5 * x + 3 * y))[here]),
        "x": Field("node", x[here]),
        "wind": Field("node", (x[here], y[here], z[here])),
        "cell": Field("element", x[1:, 1:, 1:][tuple(slice(s.start, s.stop - 1) for s in here)]),
    }
    mesh = UniformMesh(
        shape=tuple(n + 1 for n in part.shape), start=part.low, whole=(N,) * 3, origin=(-1, -1, -1),
        spacing=(2 / (N - 1),) * 3, fields=fields, ghosts={"element": marks},
    )  # fmt: skip
    corners = [[steps[n] for n in reversed(corner)] for corner in (own.low, own.high)]
    return to_vtk(mesh), corners


def particles(rank, size):
    points = np.random.default_rng(3).normal(size=(200, 3))[rank::size]
    return to_vtk(ParticleMesh(coordinates=points, fields={"speed": Field("element", np.linalg.norm(points, axis=1))}))


def sheet(rank, size):
    part = partition.boxes((12, 18), size)[rank]
    y, x = np.mgrid[part.low[0] : part.high[0] + 1, part.low[1] : part.high[1] + 1] / 6
    return to_vtk(
        UniformMesh(shape=x.shape, start=part.low, whole=(13, 19), axes="yx", spacing=(1 / 6, 1 / 6, 1),
                    fields={"T": Field("node", np.sin(x) * y)})
    )  # fmt: skip


def inputs_of(rank, size):
    return {"cube": [block(rank, size)[0]], "dots": [particles(rank, size)], "sheet": [sheet(rank, size)]}


def scene_of(text):
    return Pipeline(f"scenes: {{it: {{size: {list(SIZE)}, {text}}}}}").scenes["it"]


def on_ranks(size, context, work):
    """work(cohort, rank) of each rank, which are threads; an exception in the place of its result."""

    def one(cohort):
        try:
            return work(cohort, cohort.rank if cohort is not None else 0)
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, penstock.thread_cohort(size) if size > 1 else [None]))


def pictures(text, size, context, folder, make=inputs_of, boxes=True):
    def work(cohort, rank):
        renderer = SceneRenderer(scene_of(text), folder, cohort, context)
        corners = {"cube": [block(r, size)[1] for r in range(size)]} if boxes else None
        try:
            return renderer.picture(make(rank, size), VALUES, corners)
        finally:
            renderer.close()

    return on_ranks(size, context, work)


def picture(text, size, context, folder, make=inputs_of, boxes=True):
    first, *others = pictures(text, size, context, folder, make, boxes)
    if isinstance(first, Exception):
        raise first
    assert others == [None] * (size - 1)
    assert first.shape == (SIZE[1], SIZE[0], 3) and first.dtype == np.uint8
    return first


def share_alike(one, other, within=2):
    return (np.abs(one.astype(int) - other.astype(int)).max(axis=2) <= within).mean()


OPAQUE = {
    "contour": "mesh: cube, contour: {field: blob, value: 0.4}, color: x, label: 'step {cycle}'",
    "two": "plots: [{mesh: cube, slice: z, color: cell}, {mesh: cube, contour: {field: blob, value: 0.6}}]",
    "surface": "mesh: cube, color: wind, range: [0, 1.5]",
    "clip": "mesh: cube, clip: {plane: {normal: [1, -1, 0]}}, color: blob",
    "threshold": "mesh: cube, threshold: {field: blob, min: 0.4}, color: cell",
    "particles": "mesh: dots, color: speed",
    "points": "mesh: cube, points: 0.03, color: cell",
    "sheet": "mesh: sheet, color: T",
}
SEE_THROUGH = {
    "volume": "mesh: cube, volume: blob",
    "opacity": "mesh: cube, opacity: 0.5, color: x",
    "shells": "mesh: cube, contour: {field: blob, values: [0.3, 0.6]}, color: blob, opacity: 0.4",
    "volume and slice": "plots: [{mesh: cube, volume: blob}, {mesh: cube, slice: {normal: y, at: 0.2}, color: x}]",
    "volume and shell": "plots: [{mesh: cube, volume: blob}, {mesh: cube, contour: blob, opacity: 0.4}]",
}


@pytest.mark.parametrize("name", OPAQUE)
def test_opaque_pictures_are_the_same_from_all_ranks(name, context, tmp_path):
    alone = picture(OPAQUE[name], 1, context, tmp_path)
    assert len(np.unique(alone.reshape(-1, 3), axis=0)) > 100
    for size in (2, 3, 4):
        assert share_alike(alone, picture(OPAQUE[name], size, context, tmp_path)) >= 0.999


@pytest.mark.parametrize("name", SEE_THROUGH)
@pytest.mark.parametrize("boxes", [True, False])
def test_what_one_sees_through_is_the_same_from_all_ranks(name, boxes, context, tmp_path):
    alone = picture(SEE_THROUGH[name], 1, context, tmp_path)
    for size in (2, 3, 4):
        many = picture(SEE_THROUGH[name], size, context, tmp_path, boxes=boxes)
        assert share_alike(alone, many, 2) >= 0.985 and share_alike(alone, many, 4) >= 0.999


def test_an_opaque_thing_hides_the_volume_behind_it_on_other_ranks(context, tmp_path):
    """Seen along y: the volume is of the one rank, the plane of the other."""
    text = "camera: {direction: [0, -1, 0]}, plots: [{mesh: back, volume: f}, {mesh: front, clip: {plane: z}}]"

    def make(rank, size):
        mesh = UniformMesh(shape=(5, 5, 5), fields={"f": Field("node", np.ones((5, 5, 5)))}, origin=(0, 5, 0))
        wall = UniformMesh(shape=(5, 5, 5), origin=(0, 0, 0))
        return {"back": [to_vtk(mesh)] if rank == 0 else [], "front": [to_vtk(wall)] if rank == size - 1 else []}

    alone = picture(text, 1, context, tmp_path, make, boxes=False)
    assert share_alike(alone, picture(text, 2, context, tmp_path, make, boxes=False)) >= 0.99


def test_a_single_triangle_and_ranks_without_parts(context, tmp_path):
    def make(rank, size):
        mesh = UnstructuredMesh(
            coordinates=np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]),
            blocks=[ElementBlock("b", "tri3", np.array([[0, 1, 2]]))],
            fields={"f": Field("element", np.array([7.0]))},
        )
        return {"mesh": [to_vtk(mesh), None] if rank == size - 1 else []}

    alone = picture("color: f", 1, context, tmp_path, make)
    for size in (2, 4):
        assert (picture("color: f", size, context, tmp_path, make) == alone).all()
    # From above: the lower left half of a square.
    colored = (alone.max(axis=2).astype(int) - alone.min(axis=2)) > 40
    rows, columns = np.nonzero(colored[: SIZE[1] * 84 // 100, : SIZE[0] * 3 // 4])  # without axes and bar
    assert colored[rows.max() - 3, columns.min() + 3] and not colored[rows.min() + 3, columns.max() - 3]
    assert 0.4 < len(rows) / (np.ptp(rows) * np.ptp(columns)) < 0.6


@pytest.mark.parametrize("text", ["label: nothing", "slice: z, opacity: 0.5, color: f", "volume: f"])
def test_no_rank_has_anything(text, context, tmp_path):
    found = picture(text, 2, context, tmp_path, lambda rank, size: {"mesh": []})
    assert (found[100, :180] == found[100, 0]).all()  # the background alone


def test_colors_stand_for_values(context, tmp_path):
    """Of a flat mesh without light: the ends of the range have the ends of the colours."""
    found = picture("mesh: sheet, color: T, range: [0, 0.5]", 1, context, tmp_path).reshape(-1, 3).astype(int)
    for color in ([33, 61, 122], [194, 74, 51]):
        assert (np.abs(found - color).max(axis=1) <= 3).sum() > 200


def test_files(context, tmp_path):
    def work(cohort, rank):
        renderer = SceneRenderer(
            scene_of("mesh: sheet, color: T, file: 'a/{name}-{cycle:03d}.png'"), tmp_path, cohort, context
        )
        path = renderer.render(inputs_of(rank, 2), VALUES)
        renderer.render(inputs_of(rank, 2), VALUES)
        assert all(renderer.seconds[key] > 0 for key in ("filter", "render", "compose", "write"))
        (tmp_path / "a" / "it-004.png").mkdir(exist_ok=True)
        with pytest.raises(OSError, match="it-004"):
            renderer.render(inputs_of(rank, 2), Values(4, 0, 4))
        renderer.close()
        renderer.close()
        return path

    assert on_ranks(2, context, work) == [tmp_path / "a" / "it-003.png"] * 2
    data = (tmp_path / "a" / "it-003.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[16:24] == SIZE[0].to_bytes(4, "big") + SIZE[1].to_bytes(4, "big")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["it-003.png", "it-004.png"]


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    "text, kind, message",
    [
        ("mesh: cube, color: bolb", NotFound, "there is no field 'bolb'; did you mean 'blob'"),
        ("mesh: cube, volume: y", NotFound, "there is no field 'y'"),
        ("mesh: cube, contour: {field: blbo}", NotFound, "there is no field 'blbo'"),
        ("mesh: cub, color: x", NotFound, "there is no mesh 'cub'; did you mean 'cube'"),
        ("color: x", InvalidArgument, "one of cube, dots, sheet is needed"),
        ("mesh: cube, slice: z, volume: blob", InvalidArgument, "only a uniform mesh"),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_errors_are_raised_on_all_ranks(text, kind, message, size, context, tmp_path):
    for error in pictures(text, size, context, tmp_path):
        assert isinstance(error, kind) and message in str(error), error


@pytest.mark.parametrize("chain", ["contour: {field: x}", "clip: {sphere: 0.5}, streamlines: {field: wind}"])
@pytest.mark.parametrize("failing", [0, 2])
def test_a_rank_that_fails_in_a_filter(chain, failing, context, tmp_path):
    """Even where the filters after it exchange()."""

    def broken(parts, survey):
        raise ZeroDivisionError("mine")

    def work(cohort, rank):
        scene = scene_of(f"mesh: cube, {chain}")
        if rank == failing:
            object.__setattr__(scene.plots[0].own[0], "apply", broken)
        renderer = SceneRenderer(scene, tmp_path, cohort, context)
        with pytest.raises(ZeroDivisionError, match="mine"):
            renderer.picture(inputs_of(rank, 3), VALUES)
        return cohort.gather(b"still together", 0) is not None

    assert on_ranks(3, context, work) == [True, False, False]


def test_together_after_an_exchange_within(context):
    def work(cohort, rank):
        from penstock.analysis.agreement import exchange

        def inner():
            return exchange(cohort, lambda: 1 / (rank - 1), sum)

        with pytest.raises(ZeroDivisionError):
            together(cohort, inner)
        return together(cohort, lambda: rank)

    assert on_ranks(3, context, work) == [0, 1, 2]


def test_a_machine_that_cannot_draw():
    """The kind of window is chosen once in a process."""
    program = "from penstock.analysis.canvas import Canvas\nCanvas((20, 20))"
    environment = {**os.environ, "VTK_DEFAULT_OPENGL_WINDOW": "vtkXOpenGLRenderWindow", "DISPLAY": ""}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        pytest.skip("OSMesa is installed")
    assert "Unsupported: VTK" in done.stderr and "EGL or OSMesa" in done.stderr


# ---------------------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_no_faces_between_parts(size):
    from penstock.analysis.parts import run

    for structured in (True, False):
        faces = 0
        for rank in range(size):
            part = block(rank, size)[0]
            faces += surface(part if structured else run(vtkAppendFilter(), part), whole=False).GetNumberOfCells()
        assert faces == 6 * (N - 1) ** 2


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, 1, ["0.00", "0.50", "1.00"]),
        (-0.001, 0.001, ["-0.00100", "0.00000", "0.00100"]),
        (700, 1300, ["700", "1000", "1300"]),
        (0, 3e7, ["0.00e+00", "1.50e+07", "3.00e+07"]),
        (0, 2e-9, ["0.00e+00", "1.00e-09", "2.00e-09"]),
        (1e5, 1e5 + 0.02, ["100000.0000", "100000.0100", "100000.0200"]),
    ],
)
def test_tick_labels(low, high, expected):
    assert tick_labels(np.linspace(low, high, 3)) == expected


@pytest.mark.parametrize(
    "low, high, count, expected",
    [
        (0, 47, 5, ["0", "12", "24", "35", "47"]),
        (0, 2, 5, ["0", "1", "2"]),
        (-0.5, 0.5, 5, ["0"]),
        (0.5, 3.5, 3, ["1", "2", "3"]),
        (0, 123456, 3, ["0", "61728", "123456"]),
        (2e12, 2e12 + 8, 3, ["2.00000000000000e+12", "2.00000000000400e+12", "2.00000000000800e+12"]),
        (0.2, 0.8, 3, ["0.200", "0.500", "0.800"]),
    ],
)
def test_ticks_of_whole_numbers(low, high, count, expected):
    ticks = Bar("n", low, high, whole=True).ticks(count)
    assert [words for _, words in ticks] == expected
    assert np.allclose([low + part * (high - low) for part, _ in ticks], [float(words) for words in expected])


@pytest.mark.parametrize("size", [1, 3])
def test_bars_of_fields_of_integers_have_whole_numbers(size, context, tmp_path, monkeypatch):
    def numbered(rank, size):
        points = np.random.default_rng(3).normal(size=(6, 3))[rank::size]
        fields = {"n": np.arange(6)[rank::size], "same": np.full(len(points), 4), "speed": points[:, 0]}
        mesh = ParticleMesh(coordinates=points, fields={name: Field("element", each) for name, each in fields.items()})
        return {"dots": [to_vtk(mesh)]}

    seen = []
    annotate = Annotator.annotate

    def noted(self, picture, view, bars, label):
        seen.extend(bars)
        return annotate(self, picture, view, bars, label)

    monkeypatch.setattr(Annotator, "annotate", noted)
    picture("plots: [{color: n}, {color: same}, {color: speed}]", size, context, tmp_path, numbered, boxes=False)
    assert [bar.whole for bar in seen] == [True, True, False]
    assert [[words for _, words in bar.ticks(3)] for bar in seen[:2]] == [["0", "2", "5"], ["4"]]


@pytest.mark.parametrize("direction", [(1, 0, 0), (0, 0, 1), (0, 0, -1), (-1, 2, 0.3), (1.0, -1.75, 0.95)])
@pytest.mark.parametrize("sides", [(1, 1, 1), (1e6, 1, 3), (0, 2, 1e-6), (1, 1, 0), (0, 0, 1), (0, 0, 0)])
@pytest.mark.parametrize("size", [(800, 720), (100, 1000)])
def test_the_view_holds_the_box(direction, sides, size):
    from vtkmodules.vtkRenderingCore import vtkCamera

    bounds = np.array([[5.0, -3, 1e3]] * 2) + np.outer([0, 1], sides)
    view = view_of(bounds, Camera(direction=direction), size, bars=True, label=True)
    camera = vtkCamera()
    view.aim(camera)
    matrix = camera.GetCompositeProjectionTransformMatrix(size[0] / size[1], -1, 1)
    places = []
    for corner in np.ndindex(2, 2, 2):
        *xyz, w = matrix.MultiplyPoint([*(bounds[c, axis] for axis, c in enumerate(corner)), 1.0])
        places.append(np.array(xyz) / w)
    x, y, z = np.abs(places).max(axis=0)
    assert x <= 0.881 and y <= 0.881 and z <= 1
    assert max(np.array(places)[:, 0]) <= 0.645 and max(np.array(places)[:, 1]) <= 0.801
    if sides in [(1, 1, 1), (1, 1, 0)]:
        assert max(np.ptp(places, axis=0)[:2] / (1.52, 1.68)) > 0.45  # and it fills the picture


def test_ball_radius():
    cube = np.array([[0.0, 0, 0], [1, 1, 1]])
    assert ball_radius(cube, 10) == pytest.approx(3**0.5 / 60)
    assert ball_radius(cube, 10**6) == pytest.approx(0.01 / 3)
    assert ball_radius(np.array([[0.0, 0, 0], [1, 1, 0]]), 10**4) == pytest.approx(0.01 / 3)
    assert ball_radius(np.zeros((2, 3)), 1) == pytest.approx(1 / 60)


PROGRAM = """
import sys
import penstock
from penstock.cohort import StreamCohort
sys.path.insert(0, sys.argv[4])
import test_analysis_scene as here
from penstock.analysis.scene import SceneRenderer

folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
context = penstock.Context(directory=folder + "/streams", listen="127.0.0.1")
with StreamCohort("ranks", rank, size, context, timeout=60) as cohort:
    renderer = SceneRenderer(here.scene_of(here.OPAQUE["contour"]), folder, cohort, context)
    renderer.render(here.inputs_of(rank, size), here.VALUES)
    renderer.close()
"""


def test_processes(context, tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    tests = os.path.dirname(__file__)
    started = [subprocess.Popen([*command, str(rank), "3", tests]) for rank in range(3)]
    try:
        assert [process.wait(120) for process in started] == [0, 0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    renderer = SceneRenderer(scene_of(OPAQUE["contour"]), tmp_path / "alone")
    one = renderer.render(inputs_of(0, 1), VALUES)
    assert (tmp_path / one.name).read_bytes() == one.read_bytes()


def test_scenes_take_turns_and_each_picture_is_that_of_its_step(tmp_path):
    texts = ["mesh: dots, points: 0.1, color: speed, label: 't = {time}'", "mesh: cube, volume: blob, label: '{cycle}'"]
    lasting = [SceneRenderer(scene_of(text), tmp_path) for text in texts]
    seen = set()
    for cycle in range(4):
        points = np.random.default_rng(cycle).normal(size=(100, 3))
        fields = {"speed": Field("element", np.linalg.norm(points, axis=1))}
        inputs = {"dots": [to_vtk(ParticleMesh(coordinates=points, fields=fields))], "cube": [block(0, 1)[0]]}
        values = Values(cycle, 0.1 * cycle, cycle)
        for text, renderer in zip(texts, lasting, strict=True):
            picture = renderer.picture(inputs, values)
            fresh = SceneRenderer(scene_of(text), tmp_path)
            assert np.array_equal(picture, fresh.picture(inputs, values))
            fresh.close()
            seen.add(picture.tobytes())
    assert len(seen) == 8
    for renderer in lasting:
        renderer.close()
