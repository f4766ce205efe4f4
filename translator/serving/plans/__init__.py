"""Plans: what the pipeline has done with one request, done again for those like it, without a task."""
