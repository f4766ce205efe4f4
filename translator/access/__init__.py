"""Who may request which operations: classes of operations, the callers that a listener permits, the address
of a caller, requests of other web sites, the audit log."""
