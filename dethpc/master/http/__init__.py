"""The REST API: the application, who may ask what, one file per noun in ``routes``, the models of the wire in ``wire``."""
