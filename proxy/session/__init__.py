"""One client connection of a listener where the proxy acts for its clients: requests in, answers out in order."""
