"""A script for `penstock analyze heat cool.py`: turns the source off where it gets too hot."""

from penstock.analysis.frame import Frame

FIELDS = ["T"]  # what it reads; without this line, all fields
WHEN = "cycle % 10 == 0"  # over cycle and time; without this line, every step


def analyze(step: Frame) -> None:
    T = step.mesh().fields["T"].arrays[0]  # a NumPy array: this rank's part
    if T.max() > 900:
        step.steer(source=0.0)  # a parameter of the simulation
    for data in step.vtk():  # the same as VTK's datasets
        print(f"cycle {step.cycle}: {T.max():.1f} K in {data.GetNumberOfCells()} cells")
