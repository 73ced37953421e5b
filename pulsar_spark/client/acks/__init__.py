"""Acknowledgements and negative acknowledgements, from the application's call to the request."""
