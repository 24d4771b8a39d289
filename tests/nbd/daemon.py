"""The daemon's side of a chunk socket, as the tests start, kill and start it again."""

import subprocess

from server import BIN, run


class Daemon:
    """Images of a store behind a socket (tests/tools/image_server.cc); `images`: {name: raw file}, imported at the first start."""

    def __init__(self, folder, images):
        self.folder, self.images = folder, images
        self.store, self.socket = folder / "store", folder / "chunk.sock"
        self.process = None

    def import_images(self):
        for name, path in self.images.items():
            run(BIN / "ramet-store", "--store", self.store, "import", path, name)
        self.images = {}

    def start(self):
        self.import_images()
        with open(self.folder / "daemon.log", "ab") as log:
            self.process = subprocess.Popen([BIN / "image_server", "--store", self.store, "--socket", self.socket],
                                            stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout.readline() == b"ready\n", (self.folder / "daemon.log").read_text()
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def replace_image(self, name, path):
        """While it is not running."""
        run(BIN / "ramet-store", "--store", self.store, "rm", name)
        self.images = {name: path}

    def parameters(self, name):
        return {"image": name, "socket": self.socket}

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
