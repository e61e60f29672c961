"""The proxy: HTTP, WebSockets and TCP from clients of the master to the services of tasks on compute nodes."""
