"""What a large message takes of memory, through the client: at most three times its size, in processes of their own."""

import json
import os
import subprocess
import sys

SIZE = 160 << 20
SCRIPT = """
import hashlib, json, resource, sys
import pulsar_spark as pulsar

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

verb, url, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
client = pulsar.Client(url)
if verb == "send":
    producer = client.create_producer("t", chunking_enabled=True)
    producer.send(b"first")
    before = peak()
    payload = bytes(range(251)) * (size // 251)
    producer.send(payload)
else:
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    consumer.receive(60_000)
    before = peak()
    payload = consumer.receive(60_000).data()
print(json.dumps({"digest": hashlib.sha256(payload).hexdigest(), "bytes": peak() - before}))
client.close()
"""


def test_a_large_message_takes_at_most_three_times_its_size(client, broker, service_url, tmp_path):
    script, found = tmp_path / "script.py", {}
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for verb in ("send", "receive"):
        command = [sys.executable, str(script), verb, service_url, str(SIZE)]
        found[verb] = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
    assert len({each["digest"] for each in found.values()}) == 1
    assert {verb: each["bytes"] for verb, each in found.items() if each["bytes"] > 3 * SIZE} == {}
