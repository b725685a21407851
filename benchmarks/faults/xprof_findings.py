"""XProf's recommendations for one capture, as findings that `score.py` reads.

    xp/bin/python xprof_findings.py CAPTURE.xplane.pb.gz

XProf's advice is the statements of its overview page (the input pipeline analyzer repeats the first). Each becomes a finding with the
kind that its words come nearest to, and the share of the step that it blames, where it gives one, as the saving.
"""

import gzip
import json
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from xprof.convert.raw_to_tool_data import xspace_to_tool_data

KINDS = {  # property of the overview page: the kind that its statement names
    "statement": "idle-input",
    "kernel_launch_statement": "idle-dispatch",
    "all_other_statement": "idle",
    "device_collectives_statement": "communication",
    "precision_statement": "wide-format",
}


def findings(capture: Path) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:  # where XProf leaves its caches, too
        plain = Path(folder) / "host.xplane.pb"
        plain.write_bytes(gzip.decompress(capture.read_bytes()))
        data, _ = xspace_to_tool_data([str(plain)], "overview_page", {})
    properties: dict[str, str] = {}
    for table in json.loads(data):
        properties |= {name: value for name, value in (table.get("p") or {}).items() if value}
    step_s = float(properties.get("steptime_ms_average", 0)) / 1e3
    found = []
    for name, kind in KINDS.items():
        if message := properties.get(name, ""):
            fine = " NOT " in message or message.startswith("No step time")
            share = re.search(r"([\d.]+)% of the total step time", message)
            saving = float(share[1]) / 100 * step_s if share and not fine else None
            found.append({"kind": "" if fine else kind, "message": message, "saving_per_step_s": saving})
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(json.dumps({"tool": f"XProf {version('xprof')}", "findings": findings(Path(sys.argv[1]))}))
