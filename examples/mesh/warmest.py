"""Reads the region "plate", wherever it is: how warm the plate is, state by state."""

import argparse

from penstock import mesh


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("region", nargs="?", default="plate")
    run = parser.parse_args()
    with mesh.open(run.region) as region:
        plate = region.model.find("plate")
        print(f"{plate.count} elements {plate.topology}")
        for state in region:  # of a stream as they come, of a file those that are there
            flux = state["plate", "flux"]
            mean = state["nodeblock_1", "temperature"].mean()
            print(f"time {state.time:.2f}: mean {mean:.4f}, flux {abs(flux).max():.3f}")


if __name__ == "__main__":
    main()
