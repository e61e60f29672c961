"""The data layer: a dataset is made once, kept on the node as LMDB, and read by every trial that names the same id and version.

``cache.Cache`` brings a dataset; ``entry`` is its folder, who may use it, and how damage is found; ``eviction`` bounds what the
node holds; ``bucket`` is the copy for other nodes. ``caching`` is the decorator of the training APIs, ``order`` how an epoch goes
through the records. The package lmdb is imported when a dataset is used.
"""

from __future__ import annotations

from dethpc.data_layer.cache import Cache
from dethpc.data_layer.caching import Caching, Decorator
from dethpc.data_layer.key import Key
from dethpc.data_layer.order import Order
from dethpc.data_layer.place import Place, place
from dethpc.data_layer.records import Records

__all__ = ["Cache", "Caching", "Decorator", "Key", "Order", "Place", "Records", "place"]
