"""A Kafka cluster on real sockets: the mock cluster inside librdkafka, which confluent-kafka brings, in a process of
its own. It keeps messages in memory: it can be cut off, but not restarted.

`python kafka_cluster.py` prints its address, then obeys lines: `topic NAME PARTITIONS`, `down`, `up`, `advertise PORT`
(clients connect to 127.0.0.1 at that port: a proxy), and `session MILLISECONDS` (silence after which a member of a
group is taken for dead)."""

from __future__ import annotations

import contextlib
import ctypes
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BROKERS = 1


class KafkaCluster:
    """A cluster in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.hosts = self._answer()
        self.url = f"kafka://{self.hosts}"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], 60)[0], "the Kafka cluster does not answer"
        return self._process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._answer() == "done"


@contextlib.contextmanager
def kafka_cluster() -> Iterator[KafkaCluster]:
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield KafkaCluster(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def main() -> None:
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    [path] = package.parent.glob("confluent_kafka.libs/librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    library.rd_kafka_conf_new.restype = pointer
    library.rd_kafka_new.restype = library.rd_kafka_mock_cluster_new.restype = pointer
    library.rd_kafka_new.argtypes = [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.argtypes = [pointer, ctypes.c_int]
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [pointer]
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_topic_create.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    for name in ("down", "up"):
        getattr(library, f"rd_kafka_mock_broker_set_{name}").argtypes = [pointer, ctypes.c_int32]
    library.rd_kafka_mock_broker_set_host_port.argtypes = [pointer, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int]
    for name in ("session_timeout", "heartbeat_interval"):
        getattr(library, f"rd_kafka_mock_set_group_consumer_{name}_ms").argtypes = [pointer, ctypes.c_int]
    client = library.rd_kafka_new(0, library.rd_kafka_conf_new(), None, 0)
    cluster = library.rd_kafka_mock_cluster_new(client, BROKERS)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["topic", name, partitions]:
                library.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
            case ["down" | "up" as way]:
                for broker in range(1, BROKERS + 1):
                    getattr(library, f"rd_kafka_mock_broker_set_{way}")(cluster, broker)
            case ["advertise", port]:
                library.rd_kafka_mock_broker_set_host_port(cluster, BROKERS, b"127.0.0.1", int(port))
            case ["session", limit]:
                library.rd_kafka_mock_set_group_consumer_session_timeout_ms(cluster, int(limit))
                library.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(cluster, int(limit) // 4)
        print("done", flush=True)


if __name__ == "__main__":
    main()
