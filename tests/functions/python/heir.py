"""A child that has got its parent's connection to the lock socket, and goes on with it when its parent is dead.

python3 heir.py DESCRIPTOR LEASE PARENT; for each thing that it tries, it prints what came of it. Standard library only.
"""

import json
import os
import socket
import sys
import time


def use(connection, lease, parent):
    while os.getppid() == parent:
        time.sleep(0.001)
    # The extension hears of the death as soon as this process does; one of the two is first.
    time.sleep(0.1)
    connection.settimeout(1)
    acquire = {"op": "acquire", "key": "inherited", "request_id": "r", "remaining_ms": 5_000, "wait_ms": 0}
    for number, request in enumerate(({"op": "check", "lease": lease}, {"op": "release", "lease": lease}, acquire)):
        try:
            connection.sendall(json.dumps({"v": 1, "id": 1_000 + number, **request}).encode() + b"\n")
            answer = connection.recv(65_536)
            told = f"answered {answer}" if answer else "refused: the connection has ended"
        except OSError as error:
            told = f"refused: {error.strerror}"
        print(f"heir: {request['op']} {told}", flush=True)


if __name__ == "__main__":
    descriptor, lease, parent = map(int, sys.argv[1:])
    use(socket.socket(fileno=descriptor), lease, parent)
