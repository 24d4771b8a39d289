"""An nbdkit with Ramet's plugin, as the tests start, stop and kill it."""

import os
import pathlib
import signal
import socket
import subprocess
import time

import nbd

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/release/bin"
PLUGIN = BIN / "nbdkit-ramet-plugin.so"


def effort(full, short):
    return full if os.environ.get("RAMET_SOAK") else short


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.02)


def run(*words, status=0, timeout=120, **options):
    """Standard output and error of a program that must end with this status (None: any but 0)."""
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                          check=False, **options)
    right = done.returncode != 0 if status is None else done.returncode == status
    assert right, f"{words} ended with {done.returncode}: {done.stdout}"
    return done.stdout


class Server:
    """Parameters as nbdkit takes them: Server(folder, file=..., overlay=...)."""

    def __init__(self, folder, **parameters):
        self.folder = folder
        self.socket = folder / "nbd.sock"
        self.parameters = [f"{name}={value}" for name, value in parameters.items()]
        self.process = None
        self.clients = []
        self.log = folder / "nbdkit.log"

    def start(self, *options):
        self.socket.unlink(missing_ok=True)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["nbdkit", "-f", "--exit-with-parent", "-U", self.socket, *options, PLUGIN, *self.parameters],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.greets() or not self.is_alive(), "nbdkit serves")
        assert self.is_alive(), self.words()
        return self

    def greets(self):
        """It listens before the plugin has its disk, and greets when it has."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            try:
                client.connect(str(self.socket))
                return client.recv(8) == b"NBDMAGIC"
            except OSError:
                return False

    def words(self):
        return self.log.read_text(errors="replace")

    @property
    def uri(self):
        return f"nbd+unix:///?socket={self.socket}"

    def is_alive(self):
        return self.process.poll() is None

    def connect(self, strict=True):
        """A libnbd client; it is closed with the server, because nbdkit waits for its clients."""
        client = nbd.NBD()
        client.add_meta_context("base:allocation")
        if not strict:
            client.set_strict_mode(0)
        client.connect_uri(self.uri)
        self.clients.append(client)
        return client

    def stop(self):
        self.close_clients()
        self.process.terminate()
        try:
            assert self.process.wait(30) == 0, self.words()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def close_clients(self):
        for client in self.clients:
            try:
                client.shutdown()
            except nbd.Error:
                pass  # the server was killed, or ended the connection
        self.clients = []

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close_clients()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.is_alive():
            self.stop()
