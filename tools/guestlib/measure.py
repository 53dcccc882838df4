"""The measurement inside a guest; JSON lines on standard output, those of `trapless bench --json` and more.

What the bench does not know is added: the kernel's probes as tracefs places them (method "kernel-event", what
perf and ftrace users have; the bench's "kernel" counts by perf's own event and is cheaper), and the throughput
of redis-server with three functions counted. Where the clock counts instructions once is as good as often.

usage: measure.py CLOCK PART
"""
import json
import statistics
import subprocess
import sys
import time

VICTIM = "/usr/libexec/trapless/victim"
TRACING = "/sys/kernel/tracing"
ENTRIES = ["nop", "cnop", "push", "ret", "cret", "func", "bti-entry"]  # those that the processor has
RETURNS = ["push", "func"]
BARE_CALLS, PROBED_CALLS = 400000, 1000
CASES = {"entries": ENTRIES, "events": ["event", "return"]}
CLOCK, PART = sys.argv[1:]
EXACT = CLOCK == "instructions"
ROUNDS = 1 if EXACT else 3
FUNCTIONS = ["processCommand", "call", "lookupKey"]
PORT = "6399"
REQUESTS = 30000 if EXACT else 20000  # a run is timed in milliseconds
PIPELINE, CLIENTS = 16, 4
WAIT_S = 60


def tell(**fields):
    print(json.dumps(fields, separators=(",", ":")), flush=True)


def write(path, text):
    with open(f"{TRACING}/{path}", "w", encoding="ascii") as file:
        file.write(text)


def offsets():
    """{function: address in the file}; the victim's text is mapped as it lies in the file."""
    done = subprocess.run(["trapless", "list", VICTIM, "tl_site_*", "--json"], capture_output=True, text=True,
                          check=True)
    return {line["names"][0]: line["addr"] for line in map(json.loads, done.stdout.splitlines())}


def called(site, calls):
    """ns of one call."""
    done = subprocess.run([VICTIM], input=f"run {site} {calls}\n", capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1000


def events():
    place = offsets()
    for letter, kind, action, sites in (("p", "entry", "count", ENTRIES), ("r", "exit", "return", RETURNS)):
        for site in sites:
            function = "tl_site_" + site.replace("-", "_")
            if function not in place:
                continue
            bare = statistics.median(called(site, BARE_CALLS) for _ in range(ROUNDS))
            write("uprobe_events", f"{letter}:bench/site {VICTIM}:{place[function]}\n")
            try:
                write("events/bench/site/enable", "1")
                with_probe = statistics.median(called(site, PROBED_CALLS) for _ in range(ROUNDS))
                write("events/bench/site/enable", "0")
            finally:
                write("uprobe_events", "")
            tell(type="bench", case=site, kind=kind, action=action, method="kernel-event",
                 baseline_ns=round(bare, 3), ns=round(with_probe - bare, 3), reason="")


def until(true):
    end = time.monotonic() + WAIT_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit("measure: redis-server does not answer")
        time.sleep(0.1)


def rate(requests=REQUESTS):
    """Requests a second, of set and get together."""
    done = subprocess.run(["redis-benchmark", "-p", PORT, "-t", "set,get", "-P", str(PIPELINE), "-c", str(CLIENTS),
                           "-n", str(requests), "--csv"], capture_output=True, text=True, check=True)
    rates = [float(line.split(",")[1].strip('"')) for line in done.stdout.splitlines()[1:]]
    return len(rates) / sum(1 / value for value in rates)


def probed_rate(pid, method):
    """The same while three functions are counted; None if a probe was refused."""
    command = subprocess.Popen(["trapless", "count", "-p", str(pid), "--method", method, "--json", *FUNCTIONS],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    probes = []
    while len(probes) < len(FUNCTIONS):
        line = command.stdout.readline()
        if not line:
            print(command.stderr.read(), file=sys.stderr)
            return None
        probes.append(json.loads(line))
    value = rate()
    command.terminate()
    output, said = command.communicate()
    hits = {line["probe"]: line["hits"] for line in map(json.loads, output.splitlines()) if line["type"] == "count"}
    if len(hits) != len(FUNCTIONS) or min(hits.values()) < REQUESTS:
        print(f"measure: {method}: hits are missing: {hits}; status {command.returncode}: {said}", file=sys.stderr)
        return None
    return value if all(probe["method"] == method for probe in probes) else None


def redis():
    server = subprocess.Popen(["redis-server", "--port", PORT, "--save", "", "--appendonly", "no"],
                              stdout=subprocess.DEVNULL)
    try:
        until(lambda: subprocess.run(["redis-cli", "-p", PORT, "ping"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, check=False).returncode == 0)
        rate(REQUESTS // 10)
        share = {"jump": [], "kernel": []}
        bare = rate()
        for _ in range(ROUNDS):
            for method, values in share.items():
                value, before, bare = probed_rate(server.pid, method), bare, rate()
                if value:
                    values.append((value / ((before + bare) / 2), bare))
        for method, values in share.items():
            if values:
                tell(type="throughput", case="redis", functions=FUNCTIONS, method=method,
                     baseline_rps=round(statistics.median(bare for _, bare in values)),
                     percent=round(100 * statistics.median(part for part, _ in values), 2))
    finally:
        server.kill()
        server.wait()


def main():
    if PART in CASES:
        return subprocess.run(["trapless", "bench", "--quick", "--allow-traps", "--json", *CASES[PART]],
                              check=False).returncode
    if PART == "tracefs":
        events()
    else:
        redis()
    return 0


if __name__ == "__main__":
    sys.exit(main())
