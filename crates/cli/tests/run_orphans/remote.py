"""Like rsh and its server: a process that is started here is no child of who wants it, and outlives them.

remote.py serve SOCKET starts what it is told; remote.py run SOCKET HOST WORDS.. tells it, and ends as that does.
"""

import json
import socket
import subprocess
import sys
import threading


def serve(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=start, args=(connection,), daemon=True).start()


def start(connection):
    words, streams, _, _ = socket.recv_fds(connection, 65536, 3)
    stdin, stdout, stderr = streams
    process = subprocess.Popen(
        json.loads(words), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    for stream in streams:
        socket.close(stream)
    code = process.wait()
    try:
        connection.sendall(bytes([code & 255]))
    except OSError:
        pass  # Who wanted it is gone.


def run(path, words):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    socket.send_fds(connection, [json.dumps(words).encode()], [0, 1, 2])
    for stream in (0, 1, 2):
        socket.close(stream)
    sys.exit((connection.recv(1) or b"\xff")[0])


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    run(sys.argv[2], sys.argv[4:])
