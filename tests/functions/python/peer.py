"""A client of the lock socket that is ordered about: each line on its standard input is an order, each answered by one line of JSON.

  user 65533         becomes this user, for good
  connect PATH       connects to a lock socket
  ask LINE           sends a request line and answers with the next line that is no event; null if the connection has ended
  event              the next event but "renewed"; null if the connection has ended
  fork               makes a child that holds the connection open and does nothing else; answers with its process id
  close              closes the connection
"""

import json
import os
import signal
import socket
import sys

connection = lines = None


def next_line(wanted):
    for line in lines:
        line = json.loads(line)
        if wanted(line):
            return line
    return None


def obey(order, rest):
    global connection, lines
    if order == "user":
        os.setgroups([])
        os.setuid(int(rest))
    elif order == "connect":
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(rest)
        except PermissionError as error:
            return {"refused": error.errno}
        lines = connection.makefile()
    elif order == "ask":
        connection.sendall(rest.encode() + b"\n")
        return next_line(lambda line: "event" not in line)
    elif order == "event":
        return next_line(lambda line: line.get("event", "renewed") != "renewed")
    elif order == "fork":
        child = os.fork()
        if child == 0:
            # Of a test that failed nothing stays behind.
            signal.alarm(30)
            signal.pause()
        return child
    elif order == "close":
        lines.close()
        connection.close()
    else:
        raise ValueError(f"unknown order {order}")


for line in sys.stdin:
    order, _, rest = line.strip().partition(" ")
    print(json.dumps(obey(order, rest)), flush=True)
