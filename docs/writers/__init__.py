"""One module for each page that is drawn from the code. `docs/generate.py` calls them."""
