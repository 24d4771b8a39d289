"""What was measured beside what was promised (docs/specification.md)."""

import dataclasses

from .runs import MIB, OWN

SPEED_PEERS = ("borg zstd,1", "casync 64K", "casync 16K")


@dataclasses.dataclass(frozen=True)
class Line:
    what: str
    measured: float
    sign: str
    limit: float

    @property
    def met(self):
        return self.measured >= self.limit if self.sign == ">=" else self.measured <= self.limit


def speed_lines(speed):
    lines = []
    for way in ("put", "get"):
        own = speed[OWN][way]["mib_per_cpu_s"]
        lines += [Line(f"{way}, bytes per CPU second, as a multiple of {peer}", own / speed[peer][way]["mib_per_cpu_s"], ">=", 1.5)
                  for peer in SPEED_PEERS if peer in speed]
    return lines


def size_lines(stored):
    lines = []
    for kind in ("stored_bytes", "allocated_bytes"):
        peers = {name: rows[-1][kind] for name, rows in stored.items() if name != OWN}
        if peers:
            least = min(peers, key=peers.get)
            lines.append(Line(f"{kind.replace('_', ' ')} as a part of the smallest peer's ({least})",
                              stored[OWN][-1][kind] / peers[least], "<=", 0.8))
    return lines


def memory_lines(stored, alone, got):
    own = stored[OWN]
    beside = sum(row["added_bytes"] for row in own if row["group"] == "guest memory")
    lines = [Line("RAM images: added beside their disks, as a part of what they take alone", beside / alone[-1]["stored_bytes"], "<=", 1.0)]
    for way, rows in (("put", own), ("get", got)):
        worst = max(rows, key=lambda row: row["peak_bytes"] / row["peak_limit_bytes"])
        lines.append(Line(f"peak memory of {way}, MiB, worst of all images ({worst['input']})", worst["peak_bytes"] / MIB, "<=",
                          worst["peak_limit_bytes"] / MIB))
    return lines


def print_tables(rows, stored, speed):
    if speed:
        print(f"\n{'tool':<14}{'put MiB per CPU s':>20}{'get MiB per CPU s':>20}")
        for name, both in speed.items():
            print(f"{name:<14}{both['put']['mib_per_cpu_s']:>20.0f}{both['get']['mib_per_cpu_s']:>20.0f}")
    if stored:
        print("\nMiB added by each image, in order")
        print(f"{'':<18}" + "".join(f"{name:>14}" for name in stored))
        for number, one in enumerate(rows):
            print(f"{one.name:<18}" + "".join(f"{steps[number]['added_bytes'] / MIB:>14.1f}" for steps in stored.values()))
        for title, value in (("all", lambda steps: steps[-1]["stored_bytes"] / MIB), ("allocated", lambda steps: steps[-1]["allocated_bytes"] / MIB),
                             ("CPU s", lambda steps: sum(step["cpu_s"] for step in steps))):
            print(f"{title:<18}" + "".join(f"{value(steps):>14.1f}" for steps in stored.values()))


def print_lines(lines):
    print(f"\n{'promised':<84}{'measured':>10}{'limit':>12}")
    for line in lines:
        print(f"{line.what:<84}{line.measured:>10.2f}{line.sign:>4}{line.limit:>8.2f}  {'met' if line.met else 'NOT MET'}")
