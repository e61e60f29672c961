"""What runs on each node of an attempt, between the batch script and the user's code: one task process per node.

``node`` is the flow; its steps in order: ``place``, ``resume``, ``setup`` (the user's files, hook, Python and environment),
``rendezvous``, ``supervision`` of the user's processes, and ``end``. Programs are here: ``notebook``, ``sshd``
and ``tensorboard`` serve a task's page, ``garbage`` and ``images`` work for the master.
"""
