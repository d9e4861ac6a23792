"""The transfer service and its client as two processes.

run_transfer.py SERVER CLIENT [WAY [RECORDS [REPEATS]]]
run_transfer.py SERVER CLIENT WAY kill     the server is killed while calls are under way: the client says so and ends
"""

import subprocess
import sys
import tempfile
from pathlib import Path

DEADLINE_S = 60


def main() -> None:
    server_program, client_program, *rest = sys.argv[1:]
    way, records, repeats = (rest + ["automatic", "200000", "3"][len(rest) :])[:3]
    kill = records == "kill"
    if kill:
        records, repeats = "2000", "300000"
    with tempfile.TemporaryDirectory() as folder:
        contact = Path(folder) / "server"
        server = subprocess.Popen[str](
            [server_program, contact], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdin and server.stdout
            if server.stdout.readline() != "ready\n":
                raise SystemExit("the server did not start")
            command = [client_program, str(contact), records, repeats, way]
            client = subprocess.Popen[str](command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert client.stdout
            try:
                if kill:
                    client.stdout.readline()  # it is connected, and calls for the next hours
                    client.stdout.readline()
                    server.kill()
                out, err = client.communicate(timeout=DEADLINE_S)
            finally:
                client.kill()
                client.wait()
            server.stdin.close()
            ended = server.wait(timeout=DEADLINE_S)
        finally:
            server.kill()
            server.wait()
    print(out, err, sep="", end="")
    if kill:
        sys.exit(0 if client.returncode == 1 and "closed the" in err else 1)
    sys.exit(client.returncode or ended)


if __name__ == "__main__":
    main()
