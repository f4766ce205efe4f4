"""Models on a Ray cluster: each is a deployment of Ray Serve whose replicas run our own backends."""
