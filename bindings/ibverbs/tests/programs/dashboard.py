"""A real Prometheus scrapes `srd export` while a measurement runs, and evaluates every expression
of the dashboard for Grafana: each must be valid and have data.

dashboard.py SRD FOLDER PEER: FOLDER is for Prometheus' files; `srd serve` runs at PEER.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

EXPORT, PROMETHEUS = "127.0.0.1:9876", "127.0.0.1:9090"
#: Seconds until all expressions have data.
LIMIT_S = 90


def expressions(node):
    """All expressions of the panels, with Grafana's variables replaced."""
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str):
            expr = node["expr"].replace("$__rate_interval", "10s")
            for name in ("instance", "device"):
                expr = expr.replace(f"${name}", ".+")
            assert "$" not in expr, expr
            yield expr
        for value in node.values():
            yield from expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from expressions(value)


def get(path, **query):
    url = f"http://{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            return json.load(error)
        except ValueError:
            # It starts, and has no answer yet.
            raise OSError(f"HTTP status {error.code}") from None


def main():
    srd, folder, peer = sys.argv[1:]
    dashboard = json.loads(subprocess.check_output([srd, "export", "--dashboard"]))
    wanted = sorted(set(expressions(dashboard)))
    config = os.path.join(folder, "prometheus.yml")
    with open(config, "w") as out:
        out.write(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: srd, static_configs: [{{targets: ['{EXPORT}']}}]}}]\n"
        )
    commands = [
        [srd, "export", "--listen", EXPORT, "--paths"],
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address={PROMETHEUS}", "--log.level=error"],
        [srd, "perf", "bw", peer, "--op", "write", "--size", "64K", "--iters", "1000000000"],
        [srd, "perf", "bw", peer, "--op", "read", "--size", "64K", "--iters", "1000000000"],
    ]
    running = [subprocess.Popen(c, stdout=subprocess.DEVNULL) for c in commands]
    try:
        end = time.monotonic() + LIMIT_S
        missing = {expr: "not asked" for expr in wanted}
        while missing and time.monotonic() < end:
            time.sleep(1)
            for process, command in zip(running, commands):
                assert process.poll() is None, f"{command} ended with {process.returncode}"
            for expr in list(missing):
                try:
                    answer = get("query", query=expr)
                except OSError as error:
                    missing[expr] = str(error)
                    continue
                if answer["status"] != "success":
                    sys.exit(f"Prometheus refuses {expr}: {answer['error']}")
                values = [float(row["value"][1]) for row in answer["data"]["result"]]
                # What is not a number is no point of a graph.
                if any(value == value for value in values):
                    del missing[expr]
                else:
                    missing[expr] = "no data"
        for expr, why in missing.items():
            print(f"{why}: {expr}")
        assert not missing, f"{len(missing)} of {len(wanted)} expressions have no data"
        target = get("targets")["data"]["activeTargets"][0]
        assert target["health"] == "up" and not target["lastError"], target
        series = get("query", query='count({__name__=~"srd_.+|node_infiniband_.+"})')
        count = series["data"]["result"][0]["value"][1]
        print(f"dashboard: {len(wanted)} expressions have data, of {count} series")
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


main()
