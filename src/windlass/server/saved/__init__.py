"""Views of the dashboard's pages that a user keeps under a name."""
