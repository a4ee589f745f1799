"""A Flower app for all methods of fedmim."""
