"""One archive of all that a server keeps, and a home made of it again."""
