"""A Debian kernel package: the uncompressed kernel out of its bzImage, and modules with everything they depend on."""

import lzma
import pathlib
import struct
import zlib

from .run import BuildError, check_output, locked

ELF_MAGIC = b"\x7fELF"


def vmlinux_from_bzimage(image):
    """The ELF kernel inside `image` (bytes). Follows the setup header (Documentation/arch/x86/boot.rst: setup_sects, payload_offset,
    payload_length); no scanning for magic numbers."""
    if len(image) < 0x250 or image[0x202:0x206] != b"HdrS":
        raise BuildError("not a bzImage: the setup header has no HdrS")
    setup_sects = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sects + 1) * 512 + offset
    payload = image[start:start + length]
    if len(payload) != length or length < 8:
        raise BuildError(f"truncated bzImage: payload of {length} bytes at {start}, file has {len(image)}")
    # The last four bytes are the size of the kernel; only gzip has them as part of its own format.
    size = struct.unpack("<I", payload[-4:])[0]
    elf = _decompress(payload)
    if elf[:4] != ELF_MAGIC or len(elf) != size:
        raise BuildError(f"the bzImage payload is no ELF kernel of {size} bytes")
    return elf


def _decompress(payload):
    if payload[:4] == ELF_MAGIC:
        return payload[:-4]
    if payload[:2] == b"\x1f\x8b":
        return zlib.decompress(payload, wbits=31)
    if payload[:6] == b"\xfd7zXZ\x00":
        return lzma.decompress(payload[:-4])
    if payload[:4] == b"\x28\xb5\x2f\xfd":
        return check_output(["zstd", "-dc"], input=payload[:-4])
    if payload[:4] == b"\x02\x21\x4c\x18":
        return check_output(["lz4", "-dc"], input=payload[:-4])
    raise BuildError(f"the kernel is compressed in an unknown way (magic {payload[:4].hex()})")


class Kernel:
    """An unpacked kernel package (debian.unpacked_kernel)."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        releases = [p.name for folder in ("lib/modules", "usr/lib/modules") for p in self.root.glob(f"{folder}/*")]
        if len(set(releases)) != 1:
            raise BuildError(f"{root} holds {len(set(releases))} kernels, expected one: remove it and build again")
        self.release = releases[0]
        self.bzimage = self.root / "boot" / f"vmlinuz-{self.release}"
        self._modules = {}
        for path in self.root.rglob("*.ko*"):
            self._modules[path.name.split(".ko")[0].replace("-", "_")] = path
        config = (self.root / "boot" / f"config-{self.release}").read_text(encoding="ascii").splitlines()
        self._options = dict(line.split("=", 1) for line in config if line.startswith("CONFIG_"))

    def vmlinux(self):
        """Path of the uncompressed kernel, made once."""
        path = self.root / "vmlinux"
        with locked(self.root / "vmlinux"):
            if not path.exists():
                part = path.with_suffix(".part")
                part.write_bytes(vmlinux_from_bzimage(self.bzimage.read_bytes()))
                part.rename(path)
        return path

    def modules(self, names):
        """[(file name, bytes)] of the modules and all they depend on, uncompressed, in load order. A name may be `name?CONFIG_X`:
        left out if the kernel has that option built in."""
        order = []
        for name in names:
            name, _, option = name.partition("?")
            if option and self._options.get(option) == "y":
                continue
            self._visit(name.replace("-", "_"), order)
        return [(f"{self._modules[name].name.split('.ko')[0]}.ko", self._read(name)) for name in order]

    def _visit(self, name, order):
        if name in order:
            return
        if name not in self._modules:
            raise BuildError(f"kernel {self.release} has no module {name}")
        depends = check_output(["modinfo", "-F", "depends", self._modules[name]]).decode().strip()
        for other in filter(None, depends.split(",")):
            self._visit(other.replace("-", "_"), order)
        order.append(name)

    def _read(self, name):
        path = self._modules[name]
        data = path.read_bytes()
        if path.suffix == ".xz":
            return lzma.decompress(data)
        if path.suffix == ".zst":
            return check_output(["zstd", "-dc"], input=data)
        return data
