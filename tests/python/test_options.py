"""The typed keywords of create() and open() are the options in the library's table, with the values that it takes."""

import re
from typing import Literal, get_args, get_origin, get_type_hints

import penstock
import pytest
from penstock import _core, mesh
from penstock.options import CoprocessorOptions, MeshOptions, StreamOptions

STREAM = get_type_hints(StreamOptions)
MESH = get_type_hints(MeshOptions)


def test_every_option_has_a_type():
    assert set(STREAM) == set(_core.stream_options) | {"fixed"}
    assert set(MESH) == set(_core.mesh_options)
    assert set(get_type_hints(CoprocessorOptions)) - set(STREAM) == {"wait", "every", "pipelines"}


def require_type(kind, refusal):
    """The type admits what the library says that it takes."""
    if choices := re.search(r"unknown value '@'; there are: (.*)$", refusal):
        assert get_origin(kind) is Literal
        assert {str(each) for each in get_args(kind)} == set(choices[1].split(", "))
    elif "true or false" in refusal:
        assert kind is bool
    elif "is not a whole number" in refusal:
        assert kind is int
    elif "is not a number" in refusal:
        assert float in get_args(kind)
    elif "is not a size" in refusal or "nor a step" in refusal:
        assert get_args(kind) == (int, str)
    else:
        assert "is not a name" in refusal and kind is str


@pytest.mark.parametrize("name", sorted(STREAM.keys() - {"folder", "trace"}))
def test_types_of_stream_options(name, context):
    with pytest.raises(penstock.InvalidArgument) as refused:
        context.options_for("x", **{name: "@"})
    require_type(STREAM[name], str(refused.value))


@pytest.mark.parametrize("name", sorted(MESH.keys() - {"path"}))
def test_types_of_mesh_options(name, context, tmp_path):
    with pytest.raises(penstock.InvalidArgument) as refused:
        mesh.open(tmp_path / "none.e", context=context, **{name: "@"})
    require_type(MESH[name], str(refused.value))


@pytest.mark.parametrize("wait", get_args(get_type_hints(CoprocessorOptions)["wait"]))
def test_waits_of_coprocessors(wait, context):
    penstock.Coprocessor("c", context=context, wait=wait, rendezvous_readers=0)._lose()
    with pytest.raises(penstock.InvalidArgument, match=wait):  # the message lists what there is
        penstock.Coprocessor("c", context=context, wait="@")
