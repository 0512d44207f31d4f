"""What programs of two processes have in common: they meet by TCP, tell each other values, and
count their checks."""

import json
import socket
import struct
import sys
import time

PORT = 18500
LIMIT_S = 60


class Checks:
    """Compared values, and how many of them differ."""

    def __init__(self, program):
        self.program = program
        self.count = self.wrong = 0

    def same(self, what, got, wanted):
        self.count += 1
        if got != wanted:
            self.wrong += 1
            print(f"{self.program}: {what}: wrong", flush=True)

    def end(self):
        print(f"{self.program}: {self.count} checks, {self.wrong} wrong", flush=True)
        return 1 if self.wrong else 0


class Talk:
    """A connection to the other side, for values that JSON knows, and for bytes."""

    def __init__(self, connection):
        connection.settimeout(LIMIT_S)
        self.connection = connection

    def send_bytes(self, data):
        self.connection.sendall(struct.pack("!I", len(data)) + data)

    def receive_bytes(self):
        return self._exactly(struct.unpack("!I", self._exactly(4))[0])

    def send(self, value):
        self.send_bytes(json.dumps(value).encode())

    def receive(self):
        return json.loads(self.receive_bytes())

    def swap_bytes(self, data):
        """Sends, and returns what the other side sends at the same time."""
        self.send_bytes(data)
        return self.receive_bytes()

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise ConnectionError("the other side has ended")
            data += more
        return data


def accept():
    """Waits for the other side."""
    with socket.create_server(("", PORT)) as server:
        server.settimeout(LIMIT_S)
        return Talk(server.accept()[0])


def connect(host):
    """Connects to the other side, which may begin later."""
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            return Talk(socket.create_connection((host, PORT), timeout=LIMIT_S))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def own_address(talk):
    """The address by which the other side knows this one."""
    return talk.connection.getsockname()[0]


def run(program, arguments, first, second):
    """Runs one side and ends: `first(talk, checks)` without an argument, `second(talk, checks)`
    with the address of the first."""
    checks = Checks(program)
    if arguments:
        second(connect(arguments[0]), checks)
    else:
        first(accept(), checks)
    sys.exit(checks.end())
