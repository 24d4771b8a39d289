"""Programs to be put into an image: their size and the libraries they need."""

import pathlib
import re
import subprocess
import tempfile

from .run import BuildError, check_output


def libraries(program):
    """Shared libraries of an ELF program, as absolute paths, with its loader; empty for a static one."""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        return []
    text = done.stdout.decode()
    missing = re.findall(r"^\s*(\S+) => not found", text, re.M)
    if missing:
        raise BuildError(f"{program} needs {', '.join(missing)}: run tools/bootstrap and `make build`")
    return re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", text, re.M)


def stripped(program):
    """The program without debug information, which would only take memory in there. What is no ELF file stays as it is."""
    program = pathlib.Path(program)
    with open(program, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return program.read_bytes()
    with tempfile.NamedTemporaryFile() as file:
        check_output(["strip", "--strip-debug", "-o", file.name, program])
        return pathlib.Path(file.name).read_bytes()
