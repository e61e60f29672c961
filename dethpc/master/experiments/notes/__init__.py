"""Notes for the owner of a new experiment, about what in it cannot work or behaves differently here."""
