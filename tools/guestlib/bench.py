"""What the measurements of the guests' boots come to: JSON lines with their clock and kernel, or a table."""
import json

CLOCKS = ("instructions", "time")
PARTS = ("entries", "events", "tracefs", "redis")  # of measure.py, each a job of its own
METHODS = ("jump", "simulate", "slot", "step", "kernel", "kernel-event")
GROUPS = (("count", "entry", "entry count"), ("event", "entry", "entry event"), ("return", "exit", "return count"),
          ("return", "trampoline", "return by trampoline"))
UNITS = {"instructions": "instructions added to a call", "time": "ns added to a call, emulated"}


def lines_of(output, clock, release):
    """(the JSON lines with "clock" and "kernel", whatever else was said)"""
    lines, other = [], []
    for line in output.splitlines():
        if line.startswith("{"):
            lines.append({**json.loads(line), "clock": clock, "kernel": release})
        elif line.strip():
            other.append(line)
    return lines, "\n".join(other)


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def block(lines, clock, release):
    """One boot's table."""
    text = f"\nkernel {release}, {UNITS[clock]}\n{'':34}" + "".join(f"{name:>13}" for name in METHODS) + "\n"
    mine = [line for line in lines if (line["clock"], line["kernel"]) == (clock, release)]
    for action, kind, title in GROUPS:
        rows = {}
        for line in mine:
            if (line.get("action"), line.get("kind")) == (action, kind):
                rows.setdefault(line["case"], {})[line["method"]] = line["ns"]
        for case, row in rows.items():
            text += f"{title:22}  {case:10}" + "".join(f"{number(row.get(name)):>13}" for name in METHODS) + "\n"
    for line in mine:
        if line["type"] == "throughput":
            text += (f"redis, {len(line['functions'])} functions counted by {line['method']}: "
                     f"{line['percent']:.1f} % of {line['baseline_rps']:,} requests a second\n")
    return text


def table(lines):
    boots = dict.fromkeys((line["clock"], line["kernel"]) for line in lines)
    return "".join(block(lines, clock, release) for clock, release in boots)
