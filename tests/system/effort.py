"""How much of it: the full numbers in `make soak` (RAMET_SOAK=1), fewer in `make test`; RAMET_<NAME> overrides one."""

import os


def effort(name, full, short):
    return int(os.environ.get(f"RAMET_{name}", full if os.environ.get("RAMET_SOAK") else short))
