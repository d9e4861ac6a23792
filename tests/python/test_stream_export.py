"""A step as objects of xarray, VTK and whatever speaks DLPack."""

import numpy as np
import penstock
import pytest


@pytest.fixture
def plane():
    return "shm"


def test_xarray(hand_over):
    pytest.importorskip("xarray")

    def fill(step):
        step["T"] = np.arange(6.0).reshape(2, 3)
        step["x"] = np.array([0.0, 0.5, 1.0])
        step["time"] = 2.5
        step["note"] = "hello"
        step["other"] = np.zeros((2, 2), np.complex64)
        step.put_local("part", np.arange(4))
        step.attributes.update({"T/dims": ["y", "x"], "T/units": "K", "x/dims": "x", "title": "run"})

    step = hand_over(fill)
    data = step.to_xarray()
    assert data["T"].dims == ("y", "x") and data["T"].attrs == {"units": "K"} and "x" in data.coords
    assert data["T"].sel(x=0.5).values.tolist() == [1, 4]
    assert data.attrs == {"title": "run", "step": 0}
    assert data["other"].dims == ("other_dim_0", "other_dim_1") and data["other"].dtype == np.complex64
    assert float(data["time"]) == 2.5 and data["note"].item() == "hello" and data["part"].shape == (4,)
    assert list(step.to_xarray(["T"]).data_vars) == ["T"]


def test_xarray_with_dims_that_do_not_fit(hand_over):
    pytest.importorskip("xarray")

    def fill(step):
        step["T"] = np.zeros((2, 3))
        step.attributes["T/dims"] = ["x"]

    with pytest.raises(penstock.InvalidArgument):
        hand_over(fill).to_xarray()


def test_pandas(hand_over):
    pandas = pytest.importorskip("pandas")

    def fill(step):
        step["time"] = 2.5
        for block in (np.arange(2), np.arange(0), np.arange(2, 5)):
            step.put_local("id", block)
            step.put_local("x", 0.5 * block)
            step.put_local("other", block[::-1] if len(block) else np.arange(1))
            step.put_local("velocity", np.zeros((len(block), 3)))
        step["line"] = np.array([True, False])
        step["half"] = np.array([0.5, 1.5], np.float16)

    step = hand_over(fill)
    table = pandas.DataFrame({"id": np.arange(5), "x": 0.5 * np.arange(5)})
    pandas.testing.assert_frame_equal(step.to_pandas(), table)
    pandas.testing.assert_frame_equal(step.to_pandas(["x"]), table[["x"]])
    assert step.to_pandas(["line", "half"]).dtypes.tolist() == [bool, np.float16]
    for names, message in [
        (["id", "other"], r"'other' has \[2, 1, 3\] rows \(by block\), 'id' \[2, 0, 3\]"),
        (["id", "velocity"], "'velocity' is no array of one dimension"),
        (["time"], "'time' is no array of one dimension"),
        ([], "step 0 has no arrays of one dimension"),
    ]:
        with pytest.raises(penstock.InvalidArgument, match=message):
            step.to_pandas(names)


def test_vtk(hand_over):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def fill(step):
        step["T"] = array
        step["flags"] = array > 3
        step["F"] = np.asfortranarray(array)
        step["line"] = np.arange(3)
        step["complex"] = array.astype(np.complex64)
        step.attributes["T/spacing"] = [0.5, 1.0, 2.0]
        step.attributes["origin"] = [1.0, 2.0]

    step = hand_over(fill)
    image = step.to_vtk()
    assert image.GetDimensions() == (4, 3, 2) and image.GetSpacing() == (0.5, 1.0, 2.0)
    assert image.GetOrigin() == (1.0, 2.0, 0.0)
    data = image.GetPointData()
    assert [data.GetArrayName(i) for i in range(data.GetNumberOfArrays())] == ["T", "flags", "F"]
    for name in ("T", "F"):
        np.testing.assert_array_equal(vtk_to_numpy(data.GetArray(name)).reshape(2, 3, 4), array)
    assert image.GetScalarComponentAsDouble(3, 1, 0, 0) == array[0, 1, 3]
    assert step.to_vtk("line", spacing=[0.1]).GetDimensions() == (3, 1, 1)
    for bad in (["T", "line"], "complex"):
        with pytest.raises(penstock.InvalidArgument):
            step.to_vtk(bad)


def test_dlpack_and_array_protocols(hand_over):
    array = np.arange(6.0).reshape(2, 3)
    step = hand_over(lambda step: step.__setitem__("T", array))
    np.testing.assert_array_equal(np.from_dlpack(step["T"]), array)
    np.testing.assert_array_equal(np.asarray(step["T"]), array)
    assert np.asarray(step["T"], dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.from_dlpack(step["T"].view()), array)  # no copy
    assert len(step["T"]) == 2 and np.sum(step["T"]) == 15


def test_dlpack_producers_can_be_put(hand_over):
    class Producer:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return 1, 0

    class OnDevice(Producer):
        """As a GPU's library behaves: it copies to the host when asked to, or cannot."""

        def __init__(self, array, copies):
            super().__init__(array)
            self.copies = copies

        def __dlpack__(self, *, dl_device=None, **how):
            if not self.copies or dl_device != (1, 0):
                raise BufferError("this array stays where it is")
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return 2, 0

    def fill(step):
        step["T"] = Producer(np.arange(3))
        step["copied"] = OnDevice(np.arange(4), copies=True)
        with pytest.raises(penstock.InvalidArgument, match="in a device's memory, and was not copied"):
            step["gpu"] = OnDevice(np.arange(3), copies=False)

    step = hand_over(fill)
    assert step["T"][...].tolist() == [0, 1, 2]
    assert step["copied"][...].tolist() == [0, 1, 2, 3]


def test_variables_compute_as_arrays(hand_over):
    array = np.arange(6.0).reshape(2, 3)

    def fill(step):
        step["T"] = array
        step["n"] = 3
        step["word"] = "hot"
        step.put_local("part", np.arange(3))

    step = hand_over(fill)
    T, n = step["T"], step["n"]
    assert n == 3 and n != 4 and n != "3" and n < 4 and n >= 2 and step["word"] == "hot" and n + 1 == 4
    for ours, expected in [
        (T == 4, array == 4),
        (T != T, array != array),
        (n * T - 1, 3 * array - 1),
        (array - T, 0 * array),
        (T[0] * T, array[0] * array),
        (-T // 2, -array // 2),
        (np.sqrt(T), np.sqrt(array)),
        (np.add.reduce(T, axis=1), array.sum(axis=1)),
        (step["part"] > 1, np.array([False, False, True])),
    ]:
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)
    with pytest.raises(ValueError):
        bool(T == T)  # as of any array of several elements
    with pytest.raises(TypeError):
        hash(T)
    with pytest.raises(penstock.InvalidArgument, match="'T' is read-only"):
        T += 1
    with pytest.raises(penstock.InvalidArgument, match="'T' is read-only"):
        np.add.at(T, [0], 1)
