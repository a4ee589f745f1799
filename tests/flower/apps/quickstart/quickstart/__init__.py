"""A PyTorch app for Flower: digits, split over the clients by class."""
