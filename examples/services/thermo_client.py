"""thermo_client.py CONTACT-FILE: asks the service thermo.Thermo for summaries of a field of 1000 temperatures."""

import sys
from pathlib import Path

import numpy as np
import penstock
from penstock import rpc

SCHEMA = rpc.Schema(Path(__file__).with_name("thermo.fbs"))


def show(how: str, summary: rpc.Message) -> None:
    print(f"{how}: mean {summary.mean:g}, maximum {summary.maximum:g}")


def main() -> None:
    endpoint, token = Path(sys.argv[1]).read_text().split()
    with rpc.connect(endpoint, token, "thermo/user") as channel:
        client = channel.client(SCHEMA.service("Thermo"))
        kelvin = np.arange(273.0, 1273.0)

        show("sent", client.summarize(kelvin=kelvin, timeout=5))

        with channel.expose(kelvin) as memory:
            show("exposed", client.summarize_exposed(kelvin=memory, timeout=5))

        try:
            client.summarize(timeout=5)
        except penstock.InvalidArgument as error:  # what the method raised, with where
            print(error.code)


if __name__ == "__main__":
    main()
