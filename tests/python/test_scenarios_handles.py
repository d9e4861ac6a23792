"""Writers and readers themselves, scenario by scenario, over every data plane (see test_scenarios.py): options that
they take, ends without close, and fork."""

import os
import warnings

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0


def write_step(writer, t):
    with writer.step() as step:
        step["v"] = np.arange(8.0) + 1000 * t


def read_step(reader, t):
    with reader.step() as step:
        assert step.number == t
        np.testing.assert_array_equal(step["v"], np.arange(8.0) + 1000 * t)


def test_writer_not_closed_is_lost(context, plane):
    writer = context.create("s", timeout=TIMEOUT_S, data_plane=plane)
    with context.open("s", timeout=TIMEOUT_S, data_plane=plane) as reader:
        write_step(writer, 0)
        read_step(reader, 0)
        del writer
        with pytest.raises(penstock.WriterLost):
            reader.step()


def test_options_without_effect_are_refused(context, plane, engine):
    with pytest.raises(penstock.InvalidArgument, match="delivery is an option of readers, and this is a writer"):
        context.create("s", delivery="latest")
    with pytest.raises(penstock.InvalidArgument, match=r"queue_steps is an option of writers.*, and this is a reader"):
        context.open("s", queue_steps=2)
    if engine == "direct":  # there configuration has chosen the engine, and what code asks for is a warning
        with pytest.raises(penstock.InvalidArgument, match="start is an option of readers of engine pool"):
            context.open("s", engine="direct", start=5)
        with pytest.raises(penstock.InvalidArgument, match="acknowledge is an option of writers of engine pool"):
            context.create("s", acknowledge="durable")
        with pytest.raises(penstock.InvalidArgument, match="keep_first_step is an option of writers of engine direct"):
            context.create("s", engine="pool", keep_first_step=True)
    options = {"timeout": TIMEOUT_S, "data_plane": plane}
    with (
        context.create("s", **options, keep_first_step=engine != "direct") as writer,
        context.open("s", **options) as reader,
    ):
        write_step(writer, 0)
        read_step(reader, 0)


def test_nothing_works_after_fork(context, plane):
    options = {"timeout": TIMEOUT_S, "data_plane": plane}
    with context.create("s", **options) as writer, context.open("s", **options) as reader:
        write_step(writer, 0)
        step = reader.step()
        held = [step["v"].view()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking with threads
            child = os.fork()
        if child == 0:
            refused = 0
            calls = [lambda: writer.statistics, lambda: reader.statistics, writer.step, reader.step, lambda: list(step),
                     step.end]  # fmt: skip
            for call in calls:
                try:
                    call()
                except penstock.WrongState:
                    refused += 1
            held.clear()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
        assert held[0][7] == step["v"][7] == 7
        step.end()
        held.clear()
        for t in range(1, 8):
            write_step(writer, t)
            read_step(reader, t)
