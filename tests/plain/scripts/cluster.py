"""A head that workers join, as ``ray start`` does: ``cluster.py head|worker|driver``. Head and workers never end by themselves."""

import os
import socket
import sys
import time

out = os.environ["PLAIN_OUT"]


def address():
    while not os.path.exists(f"{out}/head"):
        time.sleep(0.05)
    with open(f"{out}/head") as file:
        return "127.0.0.1", int(file.read())


def ask(word):
    with socket.create_connection(address()) as connection:
        connection.sendall(word.encode())
        return connection.makefile().readline().strip()


if sys.argv[1] == "head":
    joined = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        with open(f"{out}/head.new", "w") as file:
            file.write(str(server.getsockname()[1]))
        os.rename(f"{out}/head.new", f"{out}/head")
        while True:
            connection, _ = server.accept()
            with connection:
                word = connection.recv(100).decode()
                if word != "count":
                    joined.append(word)
                connection.sendall(f"{len(joined)}\n".encode())
elif sys.argv[1] == "worker":
    ask(os.environ["SLURMD_NODENAME"])
    time.sleep(100000)
else:
    while int(ask("count")) < int(sys.argv[2]):
        time.sleep(0.05)
