"""What runs on each node of an attempt, between the batch script and the user's code: one task process per node.

``node`` is the flow; the other modules are its steps in order: ``place``, ``resume``, ``unpack``, ``mounts``, ``workdir``, ``hook``
(with ``shell_state``, ``venv`` and ``guard``), ``rendezvous``, ``environment``, ``supervise`` (with ``processes``, ``signals`` and
``tee``) and ``end``.
"""
