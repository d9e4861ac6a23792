"""Readers of Exodus files that have nothing in common with ours: VTK's two, netCDF4, meshio.

Each gives digests of what it sees. They run in a process of their own, because files crash them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import numpy as np

Digests = dict[str, str]  # of each array of a file, as one reader sees it

STATES = 6  # that VTK's readers are asked for, of files that have more
READ_S = 120.0  # for one reader and one file


def digest(array: np.ndarray) -> str:
    """Of the shape and values; whole numbers and real numbers of any width are the same."""
    array = np.asarray(array)
    if array.dtype.kind in "iub":
        array = array.astype(np.int64)
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)
    return f"{array.dtype.kind}{array.shape} {hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]}"


def read_ioss(path: str) -> Digests:
    from vtkmodules.vtkIOIOSS import vtkIOSSReader

    reader = vtkIOSSReader()
    reader.SetFileName(path)
    reader.SetDatabaseTypeOverride("exodus")
    reader.ApplyDisplacementsOff()
    reader.UpdateInformation()
    blocks = ("NodeBlock", "EdgeBlock", "FaceBlock", "ElementBlock")
    for kind in (*blocks, "NodeSet", "EdgeSet", "FaceSet", "ElementSet", "SideSet"):
        getattr(reader, f"Get{kind}Selection")().EnableAllArrays()
        getattr(reader, f"Get{kind}FieldSelection")().EnableAllArrays()
    return vtk_states(reader)


def read_vtk_exodus(path: str) -> Digests:
    from vtkmodules.vtkIOExodus import vtkExodusIIReader

    reader = vtkExodusIIReader()
    if not reader.CanReadFile(path):
        raise ValueError("vtkExodusIIReader cannot read it")
    reader.SetFileName(path)
    reader.ApplyDisplacementsOff()
    reader.UpdateInformation()
    blocks = (reader.EDGE_BLOCK, reader.FACE_BLOCK, reader.ELEM_BLOCK, reader.NODAL, reader.GLOBAL)
    for kind in (*blocks, reader.NODE_SET, reader.EDGE_SET, reader.FACE_SET, reader.SIDE_SET, reader.ELEM_SET):
        reader.SetAllArrayStatus(kind, 1)
        for i in range(reader.GetNumberOfObjects(kind)):
            reader.SetObjectStatus(kind, i, 1)
    return vtk_states(reader)


def vtk_states(reader) -> Digests:
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline as Pipeline

    times = reader.GetOutputInformation(0).Get(Pipeline.TIME_STEPS()) or ()
    found = {"times": digest(np.array(times, float))}
    chosen = (
        sorted({int(i) for i in np.linspace(0, len(times) - 1, STATES)}) if len(times) > STATES else range(len(times))
    )
    for state in chosen or [None]:
        if state is None:
            reader.Update()
        else:
            reader.UpdateTimeStep(times[state])
        data = reader.GetOutputDataObject(0)
        if data is None:
            raise ValueError("the reader gave nothing")
        for number, leaf in enumerate(vtk_leaves(data)):
            found.update(vtk_leaf(leaf, f"state {state}, piece {number}, "))
    return found


def vtk_leaves(data) -> Iterator:
    iterator = data.NewIterator()
    while not iterator.IsDoneWithTraversal():
        yield iterator.GetCurrentDataObject()
        iterator.GoToNextItem()


# Of vtkExodusIIReader: what follows the end of a text is whatever was in memory. netCDF reads the same records.
UNDEFINED = ("QA_Records", "Info_Records")


def vtk_leaf(leaf, where: str) -> Digests:
    from vtkmodules.util.numpy_support import vtk_to_numpy

    found = {}
    points = leaf.GetPoints() if hasattr(leaf, "GetPoints") else None
    if points is not None and points.GetNumberOfPoints():
        found[where + "points"] = digest(vtk_to_numpy(points.GetData()))
    for part in ("Cells", "PolyhedronFaces", "Verts", "Lines", "Polys"):
        cells = getattr(leaf, f"Get{part}", lambda: None)()
        if cells is not None and cells.GetNumberOfCells():
            found[where + part] = digest(vtk_to_numpy(cells.GetConnectivityArray()))
            found[where + part + " offsets"] = digest(vtk_to_numpy(cells.GetOffsetsArray()))
    for kind in ("Point", "Cell", "Field"):
        arrays = getattr(leaf, f"Get{kind}Data")()
        for i in range(arrays.GetNumberOfArrays()):
            array = arrays.GetArray(i)
            if array is not None and array.GetName() not in UNDEFINED:
                found[f"{where}{kind} {array.GetName()}"] = digest(vtk_to_numpy(array))
    return found


# What copies may have otherwise: sizes and versions of the file itself, and what Nemesis adds for decompositions.
OF_THE_FILE = {
    "api_version", "version", "floating_point_word_size", "file_size", "maximum_name_length", "int64_status",
    "last_written_time", "nemesis_api_version", "nemesis_file_version", "processor_info",
}  # fmt: skip


# Tables that say what the presence of other variables says, and ids and properties of maps, which a copy does not keep.
NOT_COMPARED = re.compile(r"\w+_var_tab|(nm|em|edm|fam)_prop\d+")


def read_netcdf(path: str) -> Digests:
    """Every variable and attribute. Old forms of a variable count as what stands for it now.

    Results and properties have their names here in place of their numbers, so that their order does not count."""
    from netCDF4 import Dataset

    with Dataset(path) as file:
        file.set_auto_maskandscale(False)
        found = {f"attribute {name}": str(file.getncattr(name)) for name in file.ncattrs() if name not in OF_THE_FILE}
        texts = {
            name: netcdf_texts(each) for name, each in file.variables.items() if each.dtype == "S1" and each.ndim > 1
        }
        for name, variable in file.variables.items():
            if NOT_COMPARED.fullmatch(name):
                continue
            if name in texts:
                if not re.fullmatch(r"name_\w+_var", name):
                    found.update({f"{name}[{i}]": text for i, text in enumerate(texts[name])})
                continue
            if property := re.fullmatch(r"(\w+_prop)\d+", name):
                label = variable.getncattr("name") if "name" in variable.ncattrs() else name
                found[f"{property[1]} {label}"] = digest(variable[...])
                continue
            attributes = {each: str(variable.getncattr(each)) for each in variable.ncattrs() if each != "_FillValue"}
            found.update({f"{name}:{each}": value for each, value in attributes.items()})
            found.update({key: digest(values) for key, values in netcdf_arrays(name, variable[...], texts)})
    return {key: value for key, value in found.items() if value and not value.startswith("f(0,)")}


def netcdf_texts(variable) -> list[str]:
    from netCDF4 import chartostring

    return [str(each).split("\0")[0].rstrip() for each in chartostring(variable[...], encoding="latin-1").ravel()]


def netcdf_arrays(name: str, values: np.ndarray, texts: dict[str, list[str]]) -> Iterator[tuple[str, np.ndarray]]:
    if name == "coord":
        yield from ((f"coord{axis}", row) for axis, row in zip("xyz", values, strict=False))
    elif name in ("vals_glo_var", "vals_nod_var"):
        labels = texts[name.replace("vals", "name")]
        yield from ((f"{name} {label}", values[:, i]) for i, label in enumerate(labels))
    elif result := re.fullmatch(r"vals_(?!red)(\w+)_var(\d+)(\w*)", name):
        yield f"vals_{result[1]}_var {texts[f'name_{result[1]}_var'][int(result[2]) - 1]} {result[3]}", values
    elif name not in ("node_num_map", "elem_num_map") or not np.array_equal(values, np.arange(values.size) + 1):
        yield name, values  # a map that says what its absence says is left out


def read_meshio(path: str) -> Digests:
    import meshio

    read = meshio.exodus.read(path)
    flat = 3 - read.points.shape[1]  # which it leaves out of some forms of 2-D coordinates
    found = {"points": digest(np.pad(read.points, ((0, 0), (0, flat))))}
    for number, block in enumerate(read.cells):
        found[f"cells {number} {block.type}"] = digest(block.data)
    for kind in ("point_data", "cell_data", "point_sets"):
        for name, values in getattr(read, kind).items():
            if name == "":  # of sets without a name it has only the last
                continue
            for number, array in enumerate(values if kind == "cell_data" else [values]):
                found[f"{kind} {name} {number}"] = digest(array)
    return found


READERS = {"IOSS": read_ioss, "VTK Exodus": read_vtk_exodus, "netCDF": read_netcdf, "meshio": read_meshio}


UNSTABLE = {
    "VTK Exodus": 4
}  # how often it is asked once more: names of more than 32 characters, 1-D and damaged meshes


def read_quietly(reader: str, path: str) -> Digests | str:
    """In the process of the readers: what it reads, or why it does not."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        if not os.path.exists(path):
            return "a file for each rank"
        return READERS[reader](path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Blocks and sets without a name have the one in a copy that IOSS gives them, and axes are x, y and z.
MAY_BE_ADDED = re.compile(r"(eb|ed|fa|ns|es|fs|els|ss|coor)_names\[\d+\]|point_sets .*")


def first_difference(before: Digests, after: Digests) -> str:
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    keys = [key for key in keys if key in before or not MAY_BE_ADDED.fullmatch(key)]
    if not keys:
        return "identical"
    key = keys[0]
    text = f"{key}: {before.get(key, 'absent')} and {after.get(key, 'absent')}"
    return text + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")


class Readers:
    """Runs readers in a process, which is started again after a crash. A context manager."""

    def __init__(self) -> None:
        self._process: ProcessPoolExecutor | None = None

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.shutdown()

    def read(self, reader: str, path: Path) -> Digests | str:
        self._process = self._process or ProcessPoolExecutor(1, get_context("spawn"))
        try:
            return self._process.submit(read_quietly, reader, str(path)).result(READ_S)
        except BrokenProcessPool:
            self._process = None
            return "crashed"

    def read_first(self, reader: str, path: Path) -> Digests | str:
        """The same, where a reader that is known to show memory that it never set reads the same each time."""
        first = self.read(reader, path)
        for _ in range(UNSTABLE.get(reader, 0)):
            again = self.read(reader, path)
            if again != first:
                return again if isinstance(again, str) else "reads another thing each time"
        return first

    def verdict(self, reader: str, before: Digests, path: Path) -> str:
        """ "identical", or what is different from the digests of another file."""
        verdict = "-"
        for _ in range(1 + UNSTABLE.get(reader, 0)):
            after = self.read(reader, path)
            verdict = after if isinstance(after, str) else first_difference(before, after)
            if verdict == "identical":
                break
        return verdict
