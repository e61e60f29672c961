"""The directory of a run on shared_fs: one format, its writer and its reader.

``layout`` names the places, ``files`` writes JSON atomically, ``journal`` is the attempt's event log, ``logline`` the
log format, ``claim`` makes a run start once, ``spec`` says what to run.
"""
