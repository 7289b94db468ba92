"""Where routers read the ring: a file, our own API, and several places at once. An epoch never goes back."""
