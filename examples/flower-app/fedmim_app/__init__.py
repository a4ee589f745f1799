"""A Flower app for every method of fedmim."""
