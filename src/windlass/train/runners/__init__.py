"""The machines that carry strategies on a member."""
