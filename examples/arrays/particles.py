"""Puts particles into the space of the pool as structures and as arrays, and gets them as each."""

import numpy as np
import penstock

COUNT = 1000


def main() -> None:
    half = COUNT // 2
    identifiers = np.arange(half, COUNT)
    x, mass = np.sqrt(identifiers), np.ones(half)
    structures = np.zeros(half, np.dtype([("id", "int64"), ("x", "float64"), ("mass", "float64")], align=True))
    structures["id"], structures["x"], structures["mass"] = np.arange(half), np.sqrt(np.arange(half)), 2
    space = penstock.Space()
    particles = space.define("particles", [("x", "float64"), ("mass", "float32"), ("id", "int32")], (COUNT,))
    particles[0][:half] = structures  # a structured array, in any order of fields, types and padding,
    particles[0][half:] = {"x": x, "mass": mass, "id": identifiers}  # or an array of each field

    everything = particles[0][...]  # an array of structures,
    arrays = particles[0].get(fields=["x", "mass"])  # an array of each field, by name,
    single = particles[0].get(fields="x", dtype="float32")  # or one of them
    print(f"particle 700: {everything[700]}")
    print(f"mass {arrays['mass'].sum():.0f}, centre {np.average(arrays['x'], weights=arrays['mass']):.3f}")
    print(f"single precision is off by at most {np.abs(single - arrays['x']).max():.1e}")
    space.close()


if __name__ == "__main__":
    main()
