"""The document at /openapi.json against the server that serves it: Schemathesis sends what the document allows and what
it does not, and holds every answer against it.

    openapi.py SCHEMATHESIS

PEER_SEED repeats a run; the seed is printed.
"""

import json
import os
import random
import subprocess
import sys
import urllib.request

# What any answer is held against. Not among them: whether what fits the schemas is accepted. Ranges of durations,
# lengths in bytes and what two parameters mean together are not for a schema to say, so that is refused at times.
CHECKS = {
    "faults": "not_a_server_error",
    "statuses": "status_code_conformance",
    "types": "content_type_conformance",
    "headers": "response_headers_conformance",
    "schemas": "response_schema_conformance",
    "negative": "negative_data_rejection",
    "methods": "unsupported_method",
}
# A backup is large, and its like is tested where backups are. Events are lines, and with follow=true never end.
LEFT_OUT = ["backup", "events"]


def close(node):
    """Members that are not described are faults here; clients may meet more in later versions."""
    if isinstance(node, dict):
        if node.get("type") == "object" and node.get("properties"):
            node.setdefault("additionalProperties", False)
        for value in node.values():
            close(value)
    elif isinstance(node, list):
        for value in node:
            close(value)


def prepare(document):
    close(document["components"]["schemas"])
    for path in document["paths"].values():
        for operation in path.values():
            # A claim that waits takes up to a minute.
            given = operation["parameters"]
            operation["parameters"] = [it for it in given if it["name"] != "wait"]
            # Of any type: the fuzzer needs one that it can write.
            body = operation.get("requestBody", {}).get("content", {})
            if "*/*" in body:
                del body["*/*"]
                body["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return document


def main():
    url = f"http://localhost:{os.environ['PEER_HTTP']}"
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=10) as answer:
        document = prepare(json.load(answer))
    path = os.path.join(os.environ["PEER_DIR"], "openapi.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    seed = os.environ.get("PEER_SEED") or str(random.randrange(2**31))
    print(f"seed {seed}", flush=True)
    command = [sys.argv[1]]
    command += ["run", path, "--url", url, "--seed", seed, "--checks", ",".join(CHECKS.values())]
    command += ["--phases", "examples,coverage,fuzzing", "--mode", "all", "--max-examples", "40"]
    command += ["--no-color", "--continue-on-failure", "--request-timeout", "20", "--warnings", "off"]
    for name in LEFT_OUT:
        command += ["--exclude-operation-id", name]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=280)
    print(run.stdout)
    if run.returncode:
        sys.exit(run.returncode)
    for word in CHECKS:
        print(f"ok {word}")


main()
