"""The supervisor: claims jobs, gives them to children, keeps their leases alive, and reports their outcomes."""
