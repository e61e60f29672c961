"""Images of containers on shared_fs: pulled from a registry and converted once, by a job of its own on a compute node.

``registry`` speaks with registries, ``layers`` makes a root of what they give, ``formats`` what a runtime starts of that, ``cache``
says where all of it lies, and ``pull`` goes through it in order. ``python3 -m dethpc.exec.images FILE`` is the job.
"""
