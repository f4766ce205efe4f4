"""One server of several processes: a supervisor, front ends, and the runtime process with the models."""
