"""Hostile code in the sandbox of the example of code execution: contained, reported, and the next code runs.

Every run is bounded before it starts: by a time limit, by cgroups where there are some, and by limits that the sandbox
sets on itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from execution_queue import control_groups, sandbox, system_calls
from execution_queue.pod_worker import error_of
from execution_queue.pods import PodDied, PodRuns, Pods

from code_sandbox import need_sandbox

LIMITS = sandbox.Limits(seconds=2.0, memory=128 * sandbox.MIB, processes=16, disk=16 * sandbox.MIB, output=20_000)


USED: list[int] = []  # users as which code of this process ran


@pytest.fixture(autouse=True)
def _sandbox(monkeypatch):
    need_sandbox()
    command_of = sandbox.command_of

    def noted(language, files, limits, user, *, is_counted):
        USED.append(user)
        return command_of(language, files, limits, user, is_counted=is_counted)

    monkeypatch.setattr(sandbox, "command_of", noted)


def run(code: str, language: str = "python", **changes) -> sandbox.Finished:
    from msgspec.structs import replace

    return asyncio.run(sandbox.run(language, code, replace(LIMITS, **changes)))


def processes_of_runs() -> list[str]:
    """The processes of the users as which code of this process ran, without the dead that wait for their parent."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if not folder.name.isdigit():
                continue
            user = folder.stat().st_uid
            state = (folder / "stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
            if user in USED and state != "Z":
                found.append((folder / "cmdline").read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def users_of(command: bytes) -> list[int]:
    """The users of the processes with this command line."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ProcessLookupError):
            if folder.name.isdigit() and (folder / "cmdline").read_bytes() == command:
                found.append(folder.stat().st_uid)
    return found


@pytest.fixture
def none_left():
    """Whatever the code did, none of its processes is left afterwards, and the next code runs."""
    yield
    for _ in range(100):
        if not processes_of_runs():
            break
        time.sleep(0.02)
    assert processes_of_runs() == []
    assert run("echo next", "bash").stdout == "next\n"


@pytest.mark.parametrize("language", sandbox.languages())
def test_code_runs_and_its_output_and_exit_code_are_reported(language):
    say = {"python": "print('hello')\nraise SystemExit(3)", "bash": "echo hello; exit 3",
           "node": "console.log('hello'); process.exit(3)", "ruby": "puts 'hello'; exit 3"}[language]  # fmt: skip
    ended = run(say, language)
    assert (ended.exit_code, ended.ending, ended.stdout) == (3, "exited", "hello\n"), ended.stderr


def test_output_is_told_while_the_code_runs():
    heard: list[tuple[float, str, bytes]] = []

    async def told(stream: str, part: bytes) -> None:
        heard.append((time.monotonic(), stream, part))

    code = "echo one; sleep 0.5; echo two >&2"
    ended = asyncio.run(sandbox.run("bash", code, LIMITS, told))
    assert [(stream, part) for _, stream, part in heard] == [("stdout", b"one\n"), ("stderr", b"two\n")]
    assert heard[1][0] - heard[0][0] > 0.3
    assert (ended.stdout, ended.stderr) == ("one\n", "two\n")


def test_a_fork_bomb_is_contained(none_left):
    code = """
import os
made = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            os.pause() if hasattr(os, "pause") else __import__("signal").pause()
        made += 1
except OSError as error:
    print(made, "made, then:", error)
"""
    ended = run(code)
    made = int(ended.stdout.split()[0])
    assert 0 < made < LIMITS.processes
    assert "Resource temporarily unavailable" in ended.stdout


def test_an_endless_fork_bomb_ends_with_the_time_limit(none_left):
    began = time.monotonic()
    ended = run(":(){ :|:& };:\nsleep 30", "bash", seconds=1.0)
    assert ended.ending == "timeout"
    assert time.monotonic() - began < 10


def test_a_file_of_ten_gigabytes_is_refused(none_left):
    code = "with open('/code/big', 'wb') as file:\n    for _ in range(10 * 1024):\n        file.write(bytes(1024 ** 2))"
    ended = run(code)
    assert ended.exit_code == 1
    assert "No space left on device" in ended.stderr or "File too large" in ended.stderr
    other = run("for d in / /dev /usr /proc /dev/shm /tmp; do head -c 100000000 /dev/zero > $d/big; done; df", "bash")
    assert "No space left" in other.stderr or "too large" in other.stderr
    assert other.stderr.count("Read-only file system") >= 3


def test_there_is_no_network(none_left):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        heard: list[object] = []
        server.settimeout(3)
        threading.Thread(target=lambda: heard.append(_accept(server)), daemon=True).start()
        code = f"""
import socket
for address in (("127.0.0.1", {port}), ("192.0.2.1", 80), ("169.254.169.254", 80)):
    try:
        socket.create_connection(address, 1)
        print("connected to", address)
    except OSError as error:
        print(error)
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except OSError as error:
    print(error)
"""
        ended = run(code)
    assert "connected" not in ended.stdout
    assert "resolved" not in ended.stdout
    assert "unreachable" in ended.stdout
    assert heard in ([], [None])


def _accept(server: socket.socket) -> object:
    try:
        server.accept()[0].close()
    except OSError:
        return None
    return "somebody connected"


def test_the_files_and_the_environment_of_the_host_cannot_be_read(none_left, monkeypatch, tmp_path):
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    secret = tmp_path / "secret"
    secret.write_text("hunter2", encoding="utf-8")
    secret.chmod(0o644)
    code = f"""
cat /etc/passwd; cat /etc/shadow; cat {secret}; ls /root /home /var /sys {tmp_path}
env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline | tr '\\0' ' '
ls -l /proc/*/fd; ls -l /proc/self/fd; cat /proc/1/root/etc/passwd; ls -d /proc/[0-9]*; id
"""
    ended = run(code, "bash")
    for word in ("hunter2", "root:x:", "DATABASE_PASSWORD", "pytest", str(Path.home()), "memfd"):
        assert word not in ended.stdout, word
    assert "uid=1000 gid=1000 groups=1000" in ended.stdout
    assert ended.stdout.count("/proc/") < 60  # the processes of the sandbox, and no others


def test_the_code_runs_as_a_user_of_its_own_with_no_way_to_more_rights(none_left):
    if os.geteuid() == 0:
        seen: list[int] = []

        async def told(_: str, __: bytes) -> None:
            seen.extend(users_of(b"/usr/bin/bash\0/code/main.sh\0"))

        asyncio.run(sandbox.run("bash", "echo now; sleep 0.3", LIMITS, told))
        assert set(seen) & set(USED)
        assert all(sandbox.FIRST_USER <= user < sandbox.FIRST_USER + sandbox.USERS for user in seen)
    ended = run(
        "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; unshare -U true && echo namespace; "
        "mount -t tmpfs none /tmp && echo mounted; su -c true && echo root",
        "bash",
    )
    lines = dict(line.split(":\t") for line in ended.stdout.splitlines() if "\t" in line)
    assert lines == {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    for word in ("namespace", "mounted", "root"):
        assert word not in ended.stdout.splitlines()


def test_endless_output_is_cut_off(none_left):
    ended = run("yes", "bash")
    assert (ended.ending, len(ended.stdout)) == ("output", LIMITS.output)
    assert ended.seconds < LIMITS.seconds


def test_code_that_sleeps_or_computes_past_its_limit_is_ended(none_left):
    for code in (
        "import time\nprint('begins', flush=True)\ntime.sleep(60)",
        "print('begins', flush=True)\nwhile True: pass",
    ):
        ended = run(code, seconds=0.7)
        assert (ended.ending, ended.stdout) == ("timeout", "begins\n")
        assert ended.seconds < 5


def test_code_that_hides_from_its_parent_ends_with_it(none_left):
    code = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("the parent ends")
"""
    assert run(code).stdout == "the parent ends\n"


def test_code_that_kills_all_it_can_kills_itself_at_most(none_left):
    code = """
import os
for pid in (os.getppid(), 1, -1, *range(2, 5000)):
    try:
        if pid != os.getpid():
            os.kill(pid, 9)
    except OSError:
        pass
print("I am left")
"""
    ended = run(code)
    assert (ended.stdout == "I am left\n", ended.exit_code == -9) in ((True, False), (False, True))


def test_memory_is_bounded_for_one_process_and_for_all_together(none_left):
    one = run("kept = []\nwhile True:\n    kept.append(bytes(1024 ** 2))")
    assert (one.exit_code, "MemoryError" in one.stderr) in ((1, True), (-9, False))
    need_control_groups()
    several = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        break
kept = os.urandom(60 * 1024 ** 2)
print("has it", flush=True)
time.sleep(5)
"""
    together = run(several, seconds=4.0)
    assert together.stdout.count("has it") < 7


def need_control_groups() -> None:
    group = control_groups.make_control_group(LIMITS.memory, LIMITS.processes)
    if group is None:
        pytest.skip("no cgroups here: memory is bounded for each process only")
    group.remove()


def test_code_that_is_killed_for_its_memory_is_reported_as_such(none_left):
    need_control_groups()
    shared = (
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 2**20))\n    kept[-1].write(b'x' * 2**20)"
    )
    ended = run(shared, seconds=60.0)
    assert (ended.exit_code, ended.ending) == (-9, "memory")
    ended = run("kill -9 $$", "bash")
    assert (ended.exit_code, ended.ending) == (-9, "exited")


def test_an_exit_code_is_what_the_code_said_also_above_128():
    for code, expected in {"0": 0, "127": 127, "128": 128, "200": 200, "-1": 255}.items():
        assert run(f"raise SystemExit({code})").exit_code == expected
    for number in (9, 15):
        assert run(f"import os; os.kill(os.getpid(), {number})").exit_code == -number


def test_what_namespaces_do_not_separate_is_refused(none_left):
    """Sockets that reach the host of a virtual machine, key rings, and io_uring, which opens sockets unseen."""
    machine = system_calls.MACHINES.get(os.uname().machine)
    if machine is None:
        pytest.skip("no filter of system calls for this architecture")
    code = f"""
import ctypes, os, socket
for family in (*range(64), 2**31 - 1):
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
        print("family", family)
    except OSError as error:
        if error.errno not in (94, 93):  # the type, the protocol
            assert error.errno == 97, (family, error)
libc = ctypes.CDLL(None, use_errno=True)
for name, number in {machine.numbers!r}.items():
    libc.syscall(number, 0, 0, 0, 0, 0)
    print(name, ctypes.get_errno())
libc.syscall(0x40000000 + 39)
print("x32", ctypes.get_errno())
"""
    ended = run(code)
    lines = ended.stdout.splitlines()
    families = {line for line in lines if "family" in line}
    assert {"family 1", "family 2"} <= families <= {"family 1", "family 2", "family 10"}, ended
    for name in system_calls.REFUSED:
        assert f"{name} 1" in lines, name
    assert "x32 38" in lines


def test_without_a_cgroup_code_gets_no_memory_that_no_other_limit_counts(monkeypatch, none_left):
    monkeypatch.setattr(control_groups.make_control_group, "__defaults__", (Path("/nowhere"),))
    ended = run(
        "import ctypes, os\n"
        "try:\n    os.memfd_create('kept')\nexcept OSError as error:\n    print(error)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.shmget(0, 2**20, 0o1600), libc.msgget(0, 0o1600), os.strerror(ctypes.get_errno()))"
    )
    assert ended.stdout == "[Errno 1] Operation not permitted\n-1 -1 Operation not permitted\n", ended.stderr


def test_the_filter_of_another_machine_has_its_own_numbers_and_an_unknown_one_has_none():
    filters = {name: system_calls.filter_of(is_counted=True, machine=name) for name in ("x86_64", "aarch64", "sparc")}
    assert len(filters["x86_64"]) == len(filters["aarch64"]) > 0
    assert filters["x86_64"] != filters["aarch64"]
    assert filters["sparc"] == b""


def test_threads_on_several_processors_have_the_whole_time(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with sandbox._descriptors(b"", is_counted=True) as files:
        command = sandbox.command_of("python", files, LIMITS, None, is_counted=True)
    assert f"--cpu={4 * (int(LIMITS.seconds) + 1)}" in command


@pytest.mark.skipif("node" not in sandbox.languages(), reason="Node.js is not installed")
def test_node_starts_threads(none_left):
    need_control_groups()
    code = """
const {Worker, isMainThread} = require("worker_threads");
if (isMainThread) for (let n = 0; n < 2; n++) new Worker(__filename);
else console.log("thread");
"""
    assert run(code, "node", seconds=60.0, memory=256 * sandbox.MIB).stdout == "thread\nthread\n"


def test_limits_of_both_versions_of_cgroups(tmp_path):
    (tmp_path / "v1" / "memory").mkdir(parents=True)
    (tmp_path / "v1" / "pids").mkdir()
    (tmp_path / "v2").mkdir()
    (tmp_path / "v2" / "cgroup.controllers").touch()
    for version in ("v1", "v2"):
        group = control_groups.make_control_group(LIMITS.memory, LIMITS.processes, tmp_path / version)
        assert "cgroup.procs" in " ".join(group.entering(["true"]))
    found = {path.name: path.read_text() for path in tmp_path.rglob("daybreak-sandbox-*/*")}
    assert found == {
        "memory.limit_in_bytes": str(LIMITS.memory), "memory.max": str(LIMITS.memory), "pids.max": "20",
    }  # fmt: skip
    assert control_groups.make_control_group(LIMITS.memory, LIMITS.processes, tmp_path / "nowhere") is None
    for text, was_killed in {"oom 3\noom_kill 0\n": False, "low 0\noom_kill 2\noom_group_kill 0\n": True}.items():
        for folder, name in (("v1/memory", "memory.oom_control"), ("v2", "memory.events")):
            (tmp_path / folder / name).write_text(text)
            assert control_groups.ControlGroup([tmp_path / folder]).has_run_out_of_memory() == was_killed


def test_a_run_that_is_cancelled_leaves_nothing(none_left):
    async def cancelled() -> None:
        running = asyncio.create_task(sandbox.run("bash", "sleep 60", LIMITS))
        await asyncio.sleep(0.2)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(cancelled())


def test_without_a_sandbox_no_code_runs(monkeypatch):
    monkeypatch.setattr(sandbox, "SAFE_PATH", "/nowhere")
    with pytest.raises(sandbox.NoSandbox, match="apt-get install bubblewrap"):
        sandbox.check_machine()


def test_a_machine_that_allows_no_sandbox_is_known_before_the_first_run(monkeypatch):
    sandbox.check_machine()
    command_of = sandbox.command_of

    def refused(*words, **more):
        command = command_of(*words, **more)
        return [*command[: command.index("--chdir")], "--ro-bind", "/nowhere", "/nowhere", *command[-2:]]

    monkeypatch.setattr(sandbox, "command_of", refused)
    with pytest.raises(sandbox.NoSandbox, match=r"cannot make a sandbox here: bwrap: .*nowhere(.|\n)*user namespaces"):
        sandbox.check_machine()
    with pytest.raises(sandbox.NoSandbox, match=r"did not start: bwrap: .*nowhere"):
        run("print(1)")  # and it is not the code that failed


def test_the_root_of_a_container_without_root_chooses_no_users(tmp_path):
    maps = {"0 0 4294967295\n": True, "0 1000 1\n1 100000 65536\n": False, "0 0 300500000\n": False, "": False}
    for text, expected in maps.items():
        (tmp_path / "uid_map").write_text(text)
        assert sandbox.has_users(tmp_path / "uid_map") == expected


def test_a_language_without_interpreter_is_not_the_fault_of_the_code(monkeypatch):
    monkeypatch.setitem(sandbox.LANGUAGES, "cobol", sandbox.Language("/usr/bin/no-cobol", "main.cob"))
    with pytest.raises(sandbox.NoSandbox, match="/usr/bin/no-cobol is not installed"):
        run("x", "cobol")


@pytest.mark.parametrize(
    ("language", "exit_code", "stderr", "error"),
    [
        ("python", 1, "Traceback ...\n  File x\nValueError: no\n", "ValueError: no"),
        ("bash", 3, "", "exit code 3"),
        ("bash", 2, "main.sh: exit: 0\r: numeric argument required\n", "main.sh: exit: 0\r: numeric argument required"),
        ("bash", -9, "", "ended by signal 9 (SIGKILL)"),
        ("bash", -40, "", "ended by signal 40 (a real-time signal)"),
        ("node", -6, "FATAL ERROR: out of memory\n 1: 0xb7 abort\n15: 0x195 [node]\n",
         "ended by signal 6 (SIGABRT): FATAL ERROR: out of memory"),
        ("node", 1, "/code/main.js:1\nthrow x\n^\n\nError: no\n    at x (y:1) {\n  code: 'E'\n}\n\nNode.js v20.20.2\n",
         "Error: no"),
        ("node", 1, "Node.js v20.20.2\n", "Node.js v20.20.2"),
    ],
)  # fmt: skip
def test_the_error_of_code_is_the_line_that_says_what_happened(language, exit_code, stderr, error):
    ended = sandbox.Finished(exit_code=exit_code, ending="exited", seconds=0.1, stderr=stderr)
    assert error_of(ended, language) == error


# -- the pods of a machine ---------------------------------------------------------------------------------------------


def test_a_pod_is_started_once_and_its_outcome_is_kept(tmp_path):
    pods, others = Pods(tmp_path), Pods(tmp_path)
    with pods.begin("s", 1) as pod:
        assert pod.outcome == b""
        assert pods.running() == ["s.1"]
        with pytest.raises(PodRuns), others.begin("s", 1):
            pass
        pod.end(b"done")
    with others.begin("s", 1) as again:
        assert again.outcome == b"done"
    assert pods.running() == []


def test_a_pod_whose_worker_died_is_known_as_dead(tmp_path):
    pods = Pods(tmp_path)
    with pods.begin("s", 1):
        pass  # the lock is gone, and there is no outcome: as after SIGKILL
    with pytest.raises(PodDied), pods.begin("s", 1):
        pass


def test_a_deleted_or_superseded_pod_is_not_wanted_also_before_it_starts(tmp_path):
    pods = Pods(tmp_path)
    assert pods.is_wanted("s", 1)
    pods.supersede("s", 3)
    assert [pods.is_wanted("s", fence) for fence in (2, 3, 4)] == [False, True, True]
    pods.supersede("s", 2)
    assert not pods.is_wanted("s", 2)
    pods.delete("s")
    assert not pods.is_wanted("s", 99)
    assert pods.is_wanted("other", 1)
