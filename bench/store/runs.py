"""The two measurements: everything in order into one store of each tool; and speed on one image, in rounds."""

import shutil
import statistics
import sys

from . import measure, tools

MIB, GIB = 1 << 20, 1 << 30
OWN = "ramet-store"


def say(text):
    print(text, file=sys.stderr, flush=True)


def in_order(make, rows, folder):
    """One store gets all images. A dict per image: cost of putting it, and what the store holds afterwards."""
    tool = make(folder)
    out, known, before = [], set(), measure.Size(0, 0)
    for one in rows:
        measure.into_page_cache(one.path)
        cost = tool.put(one, one.parent in known)
        known.add(one.name)
        size = measure.size_of(tool.store)
        out.append({"input": one.name, "group": one.group, "cpu_s": cost.cpu_s, "peak_bytes": cost.peak_bytes,
                    "added_bytes": size.apparent - before.apparent, "stored_bytes": size.apparent,
                    "allocated_bytes": size.allocated})
        if isinstance(tool, tools.Ramet):
            out[-1]["peak_limit_bytes"] = peak_limit(tool.literal_bytes())
        before = size
        say(f"  {tool.name}: {one.name} +{out[-1]['added_bytes'] / MIB:.1f} MiB, {cost.cpu_s:.2f} CPU s")
    return tool, out


def get_all(tool, rows):
    """Everything comes back as it was. A dict per image."""
    limit, out = peak_limit(tool.literal_bytes()), []
    for one in rows:
        cost, path = tool.get(one)
        measure.require_equal(path, one.path)
        out.append({"input": one.name, "cpu_s": cost.cpu_s, "peak_bytes": cost.peak_bytes, "peak_limit_bytes": limit})
    tool.output()
    return out


def peak_limit(literal_bytes):
    return 256 * MIB + 8 * MIB * literal_bytes // GIB


def speed(makers, one, rounds, folder):
    """Bytes that are not holes, per CPU second, of putting one image into a fresh store and of getting it back: the tools take turns."""
    costs = {name: {"put": [], "get": []} for name in makers}
    for number in range(rounds):
        for name, make in makers.items():
            tool = make(folder / "speed")
            measure.into_page_cache(one.path)  # a busy computer drops it between the tools
            costs[name]["put"].append(tool.put(one, False).cpu_s)
            measure.into_page_cache(tool.store)
            cost, path = tool.get(one)
            costs[name]["get"].append(cost.cpu_s)
            measure.require_equal(path, one.path)
            shutil.rmtree(tool.folder)
            say(f"  round {number + 1}, {name}: put {costs[name]['put'][-1]:.2f}, get {costs[name]['get'][-1]:.2f} CPU s")
    return {name: {way: {"cpu_s": values, "mib_per_cpu_s": one.allocated_bytes / MIB / statistics.median(values)}
                   for way, values in both.items()} for name, both in costs.items()}
