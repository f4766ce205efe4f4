"""Local models as a front end sees them: in another process, the runtime process, behind a ring."""
