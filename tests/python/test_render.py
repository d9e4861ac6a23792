"""Pictures: what is drawn where, what is refused, and the size of animations."""

import numpy as np
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
Image = pytest.importorskip("PIL.Image", reason="needs Pillow (pip install pillow)")

from penstock.render import animate, isosurface  # noqa: E402

SIZE = (240, 216)


def ball(shape=(24, 24, 24), radius=8.0):
    """Falls from the centre outwards; the surface of value `radius` below the maximum is a ball."""
    axes = [np.arange(n) - (n - 1) / 2 for n in shape]
    return radius - np.sqrt(axes[0][:, None, None] ** 2 + axes[1][:, None] ** 2 + axes[2] ** 2)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=int)


def saturation(image):
    """How far each pixel is from grey; the background, box and text are nearly grey, the surface is not."""
    return image.max(axis=2) - image.min(axis=2)


def drawn(image):
    return saturation(image) > 40


def test_surface_is_drawn_in_the_middle(tmp_path):
    path = isosurface(ball(), 0.0, tmp_path / "ball.png", size=SIZE)
    image = pixels(path)
    assert image.shape == (SIZE[1], SIZE[0], 3)
    rows, columns = np.nonzero(drawn(image))
    assert 0.03 < len(rows) / (SIZE[0] * SIZE[1]) < 0.3
    assert abs(rows.mean() - SIZE[1] / 2) < 20
    assert abs(columns.mean() - SIZE[0] / 2) < 20


def test_value_that_is_not_reached_gives_an_empty_box(tmp_path):
    image = pixels(isosurface(ball(), 99.0, tmp_path / "empty.png", size=SIZE))
    assert not drawn(image).any()
    assert (image.sum(axis=2) < 500).any()  # the outline


def test_color_follows_the_other_array_and_its_range(tmp_path):
    flat = np.zeros((24, 24, 24))
    low = pixels(isosurface(ball(), 0, tmp_path / "low.png", size=SIZE, color_by=flat, color_range=(0, 1)))
    high = pixels(isosurface(ball(), 0, tmp_path / "high.png", size=SIZE, color_by=flat + 1, color_range=(0, 1)))
    blue, red = low[drawn(low)].mean(axis=0), high[drawn(high)].mean(axis=0)
    assert blue[2] > blue[0] + 40
    assert red[0] > red[2] + 40


def test_axes_are_not_swapped(tmp_path):
    # Long in z, which points up in the picture, thrice as much by spacing.
    field = ball((12, 12, 12), 5.0)
    rows, columns = np.nonzero(drawn(pixels(isosurface(field, 0, tmp_path / "z.png", size=SIZE, spacing=(1, 1, 3)))))
    assert np.ptp(rows) > 1.8 * np.ptp(columns)
    half = field.copy()
    half[:, :, :6] = -9  # the lower half is gone
    rows, _ = np.nonzero(drawn(pixels(isosurface(half, 0, tmp_path / "half.png", size=SIZE))))
    assert rows.mean() < SIZE[1] / 2


def test_labels_and_views_of_any_layout(tmp_path):
    array = np.asfortranarray(ball().astype(np.float32))[::2, ::2, ::2]
    array.setflags(write=False)
    plain = pixels(isosurface(array, 0, tmp_path / "plain.png", size=SIZE, color_by=array))
    labelled = pixels(
        isosurface(array, 0, tmp_path / "label.png", size=SIZE, color_by=array, color_label="U", label="step 7")
    )
    top_left = np.s_[: SIZE[1] // 8, : SIZE[0] // 3]
    assert (plain[top_left] > 200).all()
    assert (labelled[top_left] < 120).any()


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 1)])
def test_wrong_shapes_are_refused(shape, tmp_path):
    with pytest.raises(ValueError, match="3-D array"):
        isosurface(np.zeros(shape), 0, tmp_path / "no.png")
    with pytest.raises(ValueError, match="color_by"):
        isosurface(np.zeros((4, 4, 4)), 0, tmp_path / "no.png", color_by=np.zeros(shape))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="cannot be written"):
        isosurface(ball(), 0, tmp_path / "none" / "picture.png", size=SIZE)


def test_animation_has_all_frames_and_keeps_within_bounds(tmp_path):
    frames = [isosurface(ball(radius=r), 0, tmp_path / f"{r}.png", size=SIZE, label=f"radius {r}") for r in (4, 6, 8)]
    whole = animate(frames, tmp_path / "whole.gif", width=200)
    with Image.open(whole) as image:
        assert (image.n_frames, image.width, image.info["loop"]) == (3, 200, 0)
    limit = whole.stat().st_size // 2
    assert animate(frames, tmp_path / "small.gif", width=200, max_bytes=limit).stat().st_size <= limit
    with pytest.raises(ValueError, match="no pictures"):
        animate([], tmp_path / "none.gif")
