"""The REST API: the application, authentication and limits on connections; ``nouns`` has the routes, a module per resource."""
