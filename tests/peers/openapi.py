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
# A backup is large, and its like is tested where backups are. What is imported is what was exported: lines that no schema makes. Events are lines, and with follow=true never end.
LEFT_OUT = ["backup", "events", "export", "import"]


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


def narrow(document):
    """The same for two keys of two namespaces and small tokens: there the requests meet each other's records."""
    document = json.loads(json.dumps(document))
    few = {
        "ns": {"enum": ["a", "b"]},
        "key": {"enum": ["k", "l"]},
        "token": {"type": "integer", "minimum": 1, "maximum": 40},
        "generation": {"type": "integer", "minimum": 1, "maximum": 3},
    }
    for path in document["paths"].values():
        for operation in path.values():
            # The key in the query goes with the path `-` alone.
            given = [it for it in operation["parameters"] if it["in"] == "path" or it["name"] != "key"]
            for parameter in given:
                parameter["schema"] = few.get(parameter["name"], parameter["schema"])
            operation["parameters"] = given
    document["components"]["schemas"]["Member"]["properties"]["key"] = few["key"]
    return document


def check(name, document, seed, url, phases, examples, mode):
    path = os.path.join(os.environ["PEER_DIR"], f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    config = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemathesis.toml")
    command = [sys.argv[1], "--config-file", config, "run", path, "--url", url, "--seed", seed]
    command += ["--checks", ",".join(CHECKS.values()), "--phases", phases, "--mode", mode]
    command += ["--max-examples", str(examples), "--no-color", "--continue-on-failure"]
    command += ["--request-timeout", "20", "--warnings", "off"]
    for operation in LEFT_OUT:
        command += ["--exclude-operation-id", operation]
    # What it keeps between runs goes with the folder.
    run = subprocess.run(
        command,
        cwd=os.environ["PEER_DIR"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=140,
    )
    print(run.stdout)
    if run.returncode:
        sys.exit(run.returncode)


def main():
    url = f"http://localhost:{os.environ['PEER_HTTP']}"
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=10) as answer:
        document = prepare(json.load(answer))
    seed = os.environ.get("PEER_SEED") or str(random.randrange(2**31))
    print(f"seed {seed}", flush=True)
    check("whole", document, seed, url, "coverage,fuzzing", 50, "all")
    check("narrow", narrow(document), seed, url, "fuzzing", 100, "positive")
    for word in CHECKS:
        print(f"ok {word}")


main()
